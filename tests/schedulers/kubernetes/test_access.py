"""Kubeconfigs and pods' accounts: what is read of them, and what is said of those that cannot be used."""

import base64
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from schedulers.kubernetes.access import AccessError, ExecToken, find_access, of_kubeconfig, of_pod

SERVER = "https://10.0.0.1:6443"


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate and its key, in ca.crt and ca.key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: apt-get install openssl")
    folder = tmp_path_factory.mktemp("authority")
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=x"]
    command = ["openssl", *words, "-keyout", str(folder / "ca.key"), "-out", str(folder / "ca.crt")]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def write(folder: Path, user: dict[str, Any], **cluster: Any) -> Path:
    """A kubeconfig of one context."""
    document = {
        "clusters": [{"name": "c", "cluster": {"server": SERVER, **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "ops"}}],
        "current-context": "x",
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(document))
    return path


def test_a_token_and_the_context_s_namespace(tmp_path: Path) -> None:
    """Of the current context."""
    access = of_kubeconfig(write(tmp_path, {"token": "secret"}, **{"tls-server-name": "kube.internal"}), None)
    assert (access.url, access.namespace, access.server_name) == (SERVER, "ops", "kube.internal")
    assert access.token() == "secret"
    assert "secret" not in repr(access)


def test_a_token_file_is_read_each_time(tmp_path: Path) -> None:
    """Beside the kubeconfig; the kubelet replaces it before it ends."""
    (tmp_path / "token").write_text("one\n")
    access = of_kubeconfig(write(tmp_path, {"tokenFile": "token"}), None)
    assert access.token() == "one"
    (tmp_path / "token").write_text("two\n")
    assert access.token() == "two"
    (tmp_path / "token").unlink()
    with pytest.raises(AccessError, match="token: No such file"):
        access.token()


def test_certificates_come_inline_or_in_files(tmp_path: Path, authority: Path) -> None:
    """And nothing of the key is left on the disk."""
    shutil.copy(authority / "ca.crt", tmp_path)
    key = base64.b64encode((authority / "ca.key").read_bytes()).decode()
    user = {"client-certificate": "ca.crt", "client-key-data": key}
    access = of_kubeconfig(write(tmp_path, user, **{"certificate-authority": "ca.crt"}), None)
    assert access.token() is None
    assert len(access.trust.get_ca_certs()) == 1


def test_a_pod_s_account_is_taken_where_there_is_one(tmp_path: Path, authority: Path) -> None:
    """Its token, namespace and authority; IPv6 as well."""
    shutil.copy(authority / "ca.crt", tmp_path)
    (tmp_path / "token").write_text("pod")
    (tmp_path / "namespace").write_text("foreshock\n")
    access = of_pod("10.96.0.1", "443", tmp_path)
    assert (access.url, access.namespace, access.token()) == ("https://10.96.0.1:443", "foreshock", "pod")
    assert of_pod("fd00::1", "443", tmp_path).url == "https://[fd00::1]:443"
    with pytest.raises(AccessError, match="automountServiceAccountToken"):
        of_pod("10.96.0.1", "443", tmp_path / "nowhere")


def test_without_a_name_kubectl_s_places_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """$KUBECONFIG, then ~/.kube/config."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    path = write(tmp_path, {"token": "t"})
    monkeypatch.setenv("KUBECONFIG", f"{path}{os.pathsep}/elsewhere")
    assert find_access(None, None).url == SERVER
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".kube").mkdir()
    path.rename(tmp_path / ".kube/config")
    assert find_access(None, "x").url == SERVER


@pytest.mark.parametrize(
    ("user", "cluster", "said"),
    [
        ({"username": "a", "password": "b"}, {}, "username, which is not supported: use a token"),
        ({"auth-provider": {"name": "gcp"}}, {}, "auth-provider, which is not supported: use an exec plugin"),
        ({"as": "root"}, {}, "as, which is not supported"),
        ({}, {"proxy-url": "http://p"}, "proxy-url is not supported"),
        ({}, {"server": "10.0.0.1"}, "has no server: https://HOST:PORT"),
        ({}, {"certificate-authority-data": "%%"}, "certificate-authority-data is not base64"),
        ({}, {"certificate-authority": "gone.crt"}, r"gone\.crt: No such file"),
        ({}, {"certificate-authority-data": base64.b64encode(b"no").decode()}, "certificates cannot be used"),
        ({"exec": {}}, {}, "exec has no command"),
    ],
)
def test_what_cannot_be_used_is_said(tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], said: str) -> None:
    """With the file and the remedy."""
    with pytest.raises(AccessError, match=said) as error:
        of_kubeconfig(write(tmp_path, user, **cluster), None)
    assert str(tmp_path) in str(error.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [("a: [", "not YAML"), ("- a", "not a kubeconfig"), ("current-context: x", "no context named 'x'")],
)
def test_a_broken_kubeconfig_is_said_to_be_one(tmp_path: Path, text: str, said: str) -> None:
    """Whatever it holds."""
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(AccessError, match=said):
        of_kubeconfig(path, None)
    with pytest.raises(AccessError, match="no context named 'other'"):
        of_kubeconfig(write(tmp_path, {}), "other")


def plugin(folder: Path, script: str) -> ExecToken:
    """A plugin of a shell script."""
    path = folder / "plugin"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    token = of_kubeconfig(
        write(folder, {"exec": {"command": "./plugin", "args": ["word"], "env": [{"name": "A", "value": "b"}]}}), None
    ).token
    assert isinstance(token, ExecToken)
    return token


def test_a_plugin_s_token_is_kept_until_it_ends(tmp_path: Path) -> None:
    """It gets its words, its environment and what is asked of it."""
    status = '{\\"token\\": \\"$1-$A\\", \\"expirationTimestamp\\": \\"2099-01-01T00:00:00Z\\"}'
    token = plugin(
        tmp_path,
        f'echo x >>{tmp_path}/runs; echo "$KUBERNETES_EXEC_INFO" >{tmp_path}/asked; echo "{{\\"status\\": {status}}}"',
    )
    assert [token(), token()] == ["word-b", "word-b"]
    assert (tmp_path / "runs").read_text() == "x\n"
    assert SERVER in (tmp_path / "asked").read_text()
    token.forget()
    token()
    assert (tmp_path / "runs").read_text() == "x\nx\n"


def test_a_token_that_ends_soon_is_asked_for_each_time(tmp_path: Path) -> None:
    """Better twice than too late."""
    status = '{"token": "t", "expirationTimestamp": "2020-01-01T00:00:00Z"}'
    token = plugin(tmp_path, f"echo x >>{tmp_path}/runs; echo '{{\"status\": {status}}}'")
    token()
    token()
    assert (tmp_path / "runs").read_text() == "x\nx\n"


@pytest.mark.parametrize(
    ("script", "said"),
    [("echo no >&2; exit 3", "exit code 3: no"), ("echo hello", "printed no token"), ('echo "{}"', "printed no token")],
)
def test_a_plugin_that_fails_is_told_of(tmp_path: Path, script: str, said: str) -> None:
    """With what it said."""
    with pytest.raises(AccessError, match=said):
        plugin(tmp_path, script)()
