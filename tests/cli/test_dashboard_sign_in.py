"""How people sign in to the dashboard: what the configuration says, and the secrets that are written of it."""

import stat
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.commands.dashboard import DashboardAddress, command, dashboard
from cli.config.dashboard import DashboardSignIn, read_dashboard, write_secrets
from cli.console.errors import Failure
from dashboard.app import arguments, places
from dashboard.client import ApiAddress

PEOPLE = "people: {issuer: 'https://sso.example', audience: foreshock, roles: {admin: [root]}}\n"


def written(folder: Path, text: str) -> Path:
    """A configuration."""
    file = folder / "foreshock.yaml"
    file.write_text(text)
    return file


def test_the_servers_file_serves_the_dashboard(tmp_path: Path) -> None:
    """Its other keys are the server's."""
    text = f"{PEOPLE}mode: act\ndashboard: {{sign_in: proxy, proxies: [10.1.0.5], hosts: [foreshock.example]}}\n"
    sign_in, people = read_dashboard(written(tmp_path, text))
    assert people is not None and people.audience == "foreshock"
    assert sign_in.options[:4] == ["--sign-in", "proxy", "--proxy", "10.1.0.5"]
    assert sign_in.served_hosts("127.0.0.1") == ["localhost", "127.0.0.1", "::1", "foreshock.example"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("dashboard: {sign_in: oidc}", "dashboard, sign_in: oidc needs `people`"),
        (PEOPLE + "dashboard: {sign_in: oidc}", "client_secret_file: is missing"),
        (PEOPLE + "dashboard: {sign_in: oidc, client_secret_file: x}", "address: expected https://HOST"),
        (PEOPLE + "dashboard: {sign_in: oidc, client_secret_file: x, address: 'http://a.example'}", "expected https"),
        (PEOPLE + "dashboard: {sign_in: proxy}", "proxies: is missing"),
        (PEOPLE + "dashboard: {sign_in: proxy, proxies: [proxy.example]}", "is no address or network"),
        (PEOPLE + "dashboard: {sign_im: proxy}", "did you mean 'sign_in'"),
        (PEOPLE + "dashboard: {sign_in: ldap}", "is none of none, oidc, proxy"),
        ("dashboard: {clusters: {'a b': {server: 'http://127.0.0.1:9'}}}", "'a b' is no name"),
        ("dashboard: {clusters: {west: {server: 'west:10870'}}}", "clusters, west, server: 'west:10870' is no address"),
        ("dashboard: {clusters: {west: {sever: x}}}", "did you mean 'server'"),
        ("dashboard: {clusters: {west: {}}}", "a key is missing"),
        ("dashboard: {clusters: {west: {server: 'https://west', token_file: nowhere}}}", "nowhere is no file"),
        (
            "dashboard: {clusters: {west: {server: 'http://west', token_file: x}}}",
            "would carry the token in clear text",
        ),
        (
            "dashboard: {sign_in: proxy, proxies: [10.0.0.1], clusters: {west: {server: 'https://west'}}}",
            "clusters, west, token_file: is missing",
        ),
        (
            PEOPLE + "dashboard: {sign_in: oidc, client_secret_file: x, address: 'https://a.example', "
            "clusters: {west: {server: 'https://west'}}}",
            "start one dashboard for each",
        ),
        ("people: {issuer: 'http://sso.example', audience: x, roles: {admin: [a]}}", "expected https://"),
        ("people: {issuer: 'https://sso.example', roles: {admin: [a]}}", "go together"),
        ("people: {issuer: 'https://sso.example', audience: x}", "nobody has one"),
    ],
)
def test_what_does_not_hold_is_refused_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    """File, line and key."""
    file = written(tmp_path, text)
    with pytest.raises(Failure) as refused:
        read_dashboard(file)
    assert says in refused.value.message
    assert refused.value.message.startswith(f"{file}:")


def test_the_secrets_are_this_users_alone(tmp_path: Path) -> None:
    """Nothing of them stands in a command line; whatever is in a secret is no other key."""
    (tmp_path / "secret").write_text('s"\n')
    text = "dashboard: {sign_in: oidc, client_secret_file: %s, address: 'https://foreshock.example/'}"
    sign_in, people = read_dashboard(written(tmp_path, PEOPLE + text % (tmp_path / "secret")))
    assert people is not None
    file = tmp_path / "secrets.toml"
    write_secrets(sign_in, people, file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    auth = tomllib.loads(file.read_text())["auth"]
    assert (auth["client_secret"], auth["client_id"], auth["expose_tokens"]) == ('s"', "foreshock", "id")
    assert auth["redirect_uri"] == "https://foreshock.example/oauth2callback"
    assert len(auth["cookie_secret"]) == 64
    line = " ".join(command(DashboardAddress("http://127.0.0.1:9", sign_in=sign_in, people=people, secrets=file)))
    assert f"--secrets.files={file}" in line
    assert auth["cookie_secret"] not in line and 's"' not in line
    (tmp_path / "secret").write_text("")
    with pytest.raises(Failure, match="is empty"):
        write_secrets(sign_in, people, tmp_path / "other.toml")


def test_a_token_goes_with_a_proxy_and_not_with_a_provider(tmp_path: Path) -> None:
    """With the provider each person's own sign-in goes to the API."""
    (tmp_path / "token").write_text("a token\n")
    given = ["--server", "http://127.0.0.1:9", "--port", "0", "--config"]
    proxy = written(tmp_path, "dashboard: {sign_in: proxy, proxies: [127.0.0.1]}")
    assert "--token-file is missing" in CliRunner().invoke(dashboard, [*given, str(proxy)]).output
    oidc = PEOPLE + "dashboard: {sign_in: oidc, client_secret_file: x, address: 'https://a.example'}"
    with_token = [*given, str(written(tmp_path, oidc)), "--token-file", str(tmp_path / "token")]
    assert "leave it out with `sign_in: oidc`" in CliRunner().invoke(dashboard, with_token).output


def test_a_persons_sign_in_goes_over_tls(tmp_path: Path) -> None:
    """As a token does."""
    oidc = PEOPLE + "dashboard: {sign_in: oidc, client_secret_file: x, address: 'https://a.example'}"
    given = ["--server", "http://foreshock.example:10870", "--config", str(written(tmp_path, oidc))]
    assert "in clear text" in CliRunner().invoke(dashboard, given).output


def test_each_cluster_has_its_own_token_and_no_other(tmp_path: Path) -> None:
    """What is given for all would go to each; the dashboard's program gets each file with its cluster alone."""
    for name in ("west", "east"):
        (tmp_path / name).write_text("a token\n")
    text = f"""dashboard:
  clusters:
    west: {{server: 'https://west.example:10870', token_file: {tmp_path}/west}}
    east: {{server: 'http://east.example:10870', token_file: {tmp_path}/east, insecure_http: true}}
    plain: {{server: 'http://127.0.0.1:10870'}}
"""
    file = written(tmp_path, text)
    sign_in, _ = read_dashboard(file)
    known = places(arguments(DashboardAddress(sign_in=sign_in).handed_on))
    assert known == {
        "west": (ApiAddress("https://west.example:10870"), tmp_path / "west"),
        "east": (ApiAddress("http://east.example:10870", insecure_http=True), tmp_path / "east"),
        "plain": (ApiAddress("http://127.0.0.1:10870"), None),
    }
    given = ["--port", "0", "--config", str(file), "--token-file", str(tmp_path / "west"), "--server", "http://x"]
    assert "--server, --token-file: leave it out" in CliRunner().invoke(dashboard, given).output
    assert "--server is missing" in CliRunner().invoke(dashboard, ["--port", "0"]).output


def test_any_name_is_served_where_none_is_known() -> None:
    """Behind a proxy at another address whose name nobody has said."""
    assert DashboardSignIn("proxy", proxies=("10.0.0.1",)).served_hosts("0.0.0.0") == []  # noqa: S104  # nothing is bound
    assert DashboardSignIn().served_hosts("127.0.0.1") == ["localhost", "127.0.0.1", "::1"]
