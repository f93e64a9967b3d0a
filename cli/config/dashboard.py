"""The dashboard's part of a configuration: how people sign in, and which clusters it shows. `people` of the same file
names the provider.

    people: {issuer: https://sso.example.com/realms/cluster, audience: foreshock, roles: {...}}
    dashboard: {sign_in: oidc, address: https://foreshock.example.com, client_secret_file: /etc/foreshock/oidc-secret}

    dashboard: {clusters: {west: {server: https://west.example.com:10870, token_file: /etc/foreshock/west-token}}}

The same file may serve the server, which has no use for this part.
"""

import ipaddress
import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from api.server.people_settings import PeopleSettings, is_safe_address
from cli.config.fill import fill
from cli.config.policy_table import located, read_yaml
from cli.console.errors import Failure
from cli.console.files import secret_file
from wire.access.address import clear_text

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
# It stands in addresses and in a choice.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """One cluster's API, and what is shown to it and to no other."""

    server: str
    token_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    insecure_http: bool = False  # its token may go in clear text: something else encrypts the way

    def described(self, name: str) -> str:
        """What the dashboard's program is told of it, as JSON; the token stays in its file."""
        files = {key: getattr(self, key) for key in ("token_file", "ca_file", "cert_file", "key_file")}
        paths = {key: str(file.resolve()) for key, file in files.items() if file is not None}
        return json.dumps({"name": name, "server": self.server, "insecure_http": self.insecure_http, **paths})


@dataclass(frozen=True, slots=True)
class DashboardSignIn:
    """How people come to the dashboard: by the provider of `people`, by a proxy that signs them in, or not at all.

    And to which `clusters`, by name; none: to the one of `--server`.
    """

    sign_in: Literal["none", "oidc", "proxy"] = "none"
    address: str = ""  # as browsers see the dashboard: the provider sends people back to it
    client_secret_file: Path | None = None
    cookie_secret_file: Path | None = None  # signs the cookies; none: one of its own at each start
    scopes: str = "openid email profile"  # what the provider is asked for; some want `groups`, too
    proxies: tuple[str, ...] = ()  # addresses and networks that may name a person
    person_header: str = "X-Forwarded-Email"
    groups_header: str = "X-Forwarded-Groups"
    hosts: tuple[str, ...] = ()  # more names by which browsers may ask for the dashboard
    clusters: Mapping[str, ClusterAddress] = field(default_factory=dict)

    def served_hosts(self, host: str) -> list[str]:
        """The names by which browsers may ask for it, without ports; none: any name."""
        own = _LOOPBACK if host in _LOOPBACK else (host,)
        named = [urlsplit(self.address).hostname or "", *self.hosts]
        return [*own, *filter(None, named)] if host in _LOOPBACK or any(named) else []

    @property
    def options(self) -> list[str]:
        """What the dashboard's program is told."""
        proxies = [word for proxy in self.proxies for word in ("--proxy", proxy)]
        headers = ["--person-header", self.person_header, "--groups-header", self.groups_header]
        if self.sign_in == "none":
            return []
        return ["--sign-in", self.sign_in, *(proxies + headers if self.sign_in == "proxy" else [])]


def read_dashboard(file: Path) -> tuple[DashboardSignIn, PeopleSettings | None]:
    """The parts `dashboard` and `people` of a file; its other parts are the server's.

    Raises:
        Failure: the file cannot be read, a key is unknown, or values do not go together; names file, line and key.
    """
    with located(file):
        table = read_yaml(file)
        sign_in = fill(DashboardSignIn, table.get("dashboard"), f"{file}, dashboard")
        people = None
        if table.get("people") is not None:
            try:
                people = fill(PeopleSettings, table["people"], f"{file}, people")
            except ValueError as error:
                raise Failure(f"{file}, people: {error}") from error
        _check(sign_in, people, f"{file}, dashboard")
    return sign_in, people


def _check(sign_in: DashboardSignIn, people: PeopleSettings | None, place: str) -> None:
    if sign_in.sign_in == "oidc":
        if people is None or not people.issuer:
            raise Failure(f"{place}, sign_in: oidc needs `people` with issuer and audience")
        if sign_in.client_secret_file is None:
            raise Failure(f"{place}, client_secret_file: is missing: the provider gave one for {people.audience!r}")
        if not is_safe_address(sign_in.address):
            raise Failure(f"{place}, address: expected https://HOST as browsers see it (http:// on the loopback alone)")
    if sign_in.sign_in == "proxy" and not sign_in.proxies:
        raise Failure(f"{place}, proxies: is missing: anybody could name a person in {sign_in.person_header}")
    if sign_in.clusters and sign_in.sign_in == "oidc":
        raise Failure(
            f"{place}, clusters: a person's sign-in would hold at each of them, so that one could use it at another: "
            "start one dashboard for each, or have a proxy sign people in (`sign_in: proxy`)"
        )
    for name, cluster in sign_in.clusters.items():
        _check_cluster(name, cluster, sign_in, f"{place}, clusters")
    for proxy in sign_in.proxies:
        try:
            ipaddress.ip_network(proxy, strict=False)
        except ValueError as error:
            raise Failure(f"{place}, proxies: {proxy[:60]!r} is no address or network") from error


def _check_cluster(name: str, cluster: ClusterAddress, sign_in: DashboardSignIn, place: str) -> None:
    if not _NAME.fullmatch(name):
        raise Failure(f"{place}: {name[:80]!r} is no name: letters, digits, dots, dashes and underscores, at most 63")
    place = f"{place}, {name}"
    if not cluster.server.startswith(("http://", "https://")):
        raise Failure(f"{place}, server: {cluster.server[:80]!r} is no address: write http://HOST:PORT")
    if sign_in.sign_in == "proxy" and cluster.token_file is None:
        raise Failure(f"{place}, token_file: is missing: the API takes a person's name from a token alone")
    why = None if cluster.token_file is None or cluster.insecure_http else clear_text(cluster.server)
    if why is not None:
        raise Failure(f"{place}, server: {why}; or `insecure_http: true`, where a mesh or tunnel encrypts the way")
    for key in ("token_file", "ca_file", "cert_file", "key_file"):
        file: Path | None = getattr(cluster, key)
        if file is not None and not file.is_file():
            raise Failure(f"{place}, {key}: {file} is no file")


def write_secrets(sign_in: DashboardSignIn, people: PeopleSettings, file: Path) -> None:
    """Streamlit's secrets.toml for signing in, readable by this user alone.

    Raises:
        Failure: a secret's file cannot be read, or is empty.
    """
    kept = sign_in.cookie_secret_file
    values = {
        "redirect_uri": f"{sign_in.address.rstrip('/')}/oauth2callback",
        "cookie_secret": secrets.token_hex(32) if kept is None else secret_file(kept, "dashboard, cookie_secret_file"),
        "client_id": people.audience,
        "client_secret": secret_file(sign_in.client_secret_file or Path(), "dashboard, client_secret_file"),
        "server_metadata_url": f"{people.issuer.rstrip('/')}/.well-known/openid-configuration",
        # The API verifies it itself: who holds the dashboard cannot make one.
        "expose_tokens": "id",
    }
    # A text of JSON is one of TOML, too.
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    lines += ["[auth.client_kwargs]", f"scope = {json.dumps(sign_in.scopes)}"]
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        out.write("\n".join(["[auth]", *lines, ""]))
