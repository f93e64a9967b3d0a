"""The dashboard's part of a configuration: how people sign in. `people` of the same file names the provider.

    people: {issuer: https://sso.example.com/realms/cluster, audience: foreshock, roles: {...}}
    dashboard: {sign_in: oidc, address: https://foreshock.example.com, client_secret_file: /etc/foreshock/oidc-secret}

The same file may serve the server, which has no use for this part.
"""

import ipaddress
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from api.server.people_settings import PeopleSettings, is_safe_address
from cli.config.fill import fill
from cli.config.policy_table import located, read_yaml
from cli.console.errors import Failure
from cli.console.files import secret_file

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class DashboardSignIn:
    """How people come to the dashboard: by the provider of `people`, by a proxy that signs them in, or not at all."""

    sign_in: Literal["none", "oidc", "proxy"] = "none"
    address: str = ""  # as browsers see the dashboard: the provider sends people back to it
    client_secret_file: Path | None = None
    cookie_secret_file: Path | None = None  # signs the cookies; none: one of its own at each start
    scopes: str = "openid email profile"  # what the provider is asked for; some want `groups`, too
    proxies: tuple[str, ...] = ()  # addresses and networks that may name a person
    person_header: str = "X-Forwarded-Email"
    groups_header: str = "X-Forwarded-Groups"
    hosts: tuple[str, ...] = ()  # more names by which browsers may ask for the dashboard

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
    for proxy in sign_in.proxies:
        try:
            ipaddress.ip_network(proxy, strict=False)
        except ValueError as error:
            raise Failure(f"{place}, proxies: {proxy[:60]!r} is no address or network") from error


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
