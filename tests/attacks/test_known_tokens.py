"""Tokens that everybody knows: the digests of words and of examples do not work, in a file or beside others."""

import hashlib
from pathlib import Path

import click
import pytest

from cli.config.server import load_settings

DEPLOY = Path(__file__).parents[2] / "deploy"
WORDS = (
    *("test", "data", "changeme", "password", "foreshock", "admin", "token", "secret", "", "123456", "letmein"),
    *("test\n", "changeme\n"),  # echo WORD | sha256sum
)


def refused(folder: Path, text: str) -> str:
    """The sentence with which a configuration is refused."""
    file = folder / "foreshock.yaml"
    file.write_text(text)
    with pytest.raises(click.ClickException) as caught:
        load_settings(file, {})
    return caught.value.message


@pytest.mark.parametrize("word", WORDS)
def test_the_digest_of_a_word_is_no_token(tmp_path: Path, word: str) -> None:
    """The sentence names file, line and remedy."""
    digest = hashlib.sha256(word.encode()).hexdigest()
    for shown in (digest, digest.upper()):
        why = refused(tmp_path, f"tokens:\n  - {{name: a, sha256: {shown}, scopes: [read]}}\n")
        assert "foreshock.yaml:2, tokens[0], sha256: this is the SHA-256 of" in why
        assert "`foreshock token new NAME" in why


def test_zeros_are_no_token(tmp_path: Path) -> None:
    """Nobody knows what they are the digest of; they were meant to be replaced."""
    assert "placeholder" in refused(tmp_path, f'tokens: [{{name: a, sha256: "{"0" * 64}", scopes: [read]}}]')


@pytest.mark.parametrize("word", ["test", "data"])
def test_no_file_that_is_shipped_has_a_digest_of_a_word(word: str) -> None:
    """Whoever copied the example was open to every reader of it."""
    digest = hashlib.sha256(word.encode()).hexdigest()
    assert [path.name for path in DEPLOY.rglob("*") if path.is_file() and digest.encode() in path.read_bytes()] == []


SHARED = f"tokens:\n  - {{name: sidecars, sha256: {'a1' * 32}, scopes: [ingest]}}\n"


def test_mode_act_asks_of_which_nodes_a_token_speaks(tmp_path: Path) -> None:
    """One node's root could have all others held."""
    why = refused(tmp_path, f"mode: act\n{SHARED}")
    assert "foreshock.yaml:1, mode: act is refused while token 'sidecars' may report faults of every node" in why
    assert "write `node:` beside token 'sidecars'" in why
    text = f"mode: act\n{SHARED}".replace("[ingest]}", '[ingest], node: "*"}')
    (tmp_path / "explicit.yaml").write_text(text)
    assert load_settings(tmp_path / "explicit.yaml", {}).mode == "act"


def test_mode_act_is_refused_while_the_environment_s_token_speaks_for_all(tmp_path: Path) -> None:
    """It has every scope: whoever gives it to a sidecar must say that it may speak for every node."""
    (tmp_path / "f.yaml").write_text("mode: act\n")
    environ = {"FORESHOCK_TOKEN": "0123456789abcdef"}
    with pytest.raises(click.ClickException, match="FORESHOCK_TOKEN_NODE"):
        load_settings(tmp_path / "f.yaml", environ)
    assert load_settings(tmp_path / "f.yaml", environ | {"FORESHOCK_TOKEN_NODE": "*"}).mode == "act"
    with pytest.raises(click.ClickException, match="FORESHOCK_TOKEN_NODE"):
        load_settings(None, environ | {"FORESHOCK_MODE": "act"})


def test_a_running_server_does_not_begin_to_act_for_such_a_token(tmp_path: Path) -> None:
    """The policy of before stays in force, and the log says why; in shadow mode the token works, with a warning."""
    file = tmp_path / "f.yaml"
    file.write_text(f"mode: shadow\n{SHARED}")
    settings = load_settings(file, {})
    source = settings.policy_source
    assert source is not None and source.current().mode == "shadow"
    file.write_text(f"mode: act\n# another size\n{SHARED}")
    source._checked = float("-inf")  # type: ignore[attr-defined]  # looked at now
    assert source.current().mode == "shadow"
    assert "write `node:` beside token 'sidecars'" in (source.problem or "")
