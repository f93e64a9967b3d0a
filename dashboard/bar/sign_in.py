"""Who looks at the dashboard: nobody in particular, a person of the site's OpenID provider, or whom its proxy names.

    way = SignIn("oidc")
    headers = way.headers()     # for the API; None: nobody is signed in, and the page says how to

The API verifies the provider's ID token itself and goes by the person's role: this page cannot invent anybody. A
proxy's header is believed from the proxy's own addresses alone.
"""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import streamlit as st

from dashboard.client import ApiClient
from dashboard.text import words
from wire.hints import CallerJson

SignInWay: TypeAlias = Literal["none", "oidc", "proxy"]
LOOPBACK = "127.0.0.1"
_MOST = 8192


@dataclass(frozen=True, slots=True)
class SignIn:
    """How people come. `proxies`: addresses and networks that may name a person in `person_header`."""

    way: SignInWay = "none"
    proxies: tuple[str, ...] = ()
    person_header: str = "X-Forwarded-Email"
    groups_header: str = "X-Forwarded-Groups"

    def headers(self) -> Mapping[str, str] | None:
        """What the API is told of the person; empty without sign-in, None while nobody is signed in."""
        if self.way == "oidc":
            token = st.user.tokens.get("id") if st.user.get("is_logged_in") else None
            return {"Authorization": f"Bearer {token}"} if token else None
        if self.way == "proxy":
            # Streamlit tells no address of a client on the loopback; `foreshock dashboard` has it tell the true one.
            address = st.context.ip_address or LOOPBACK
            named = {name: st.context.headers.get_all(name) for name in (self.person_header, self.groups_header)}
            return proxied(self, address, named)
        return {}


def proxied(way: SignIn, address: str, named: Mapping[str, Sequence[str]]) -> Mapping[str, str] | None:
    """The person that a proxy names; None: it is no proxy of ours, or it names nobody, or more than one."""
    persons, groups = named[way.person_header], named[way.groups_header]
    if not is_one_of(address, way.proxies) or len(persons) != 1 or not _sendable([*persons, *groups]):
        return None
    return {"Foreshock-Person": persons[0].strip(), "Foreshock-Groups": ",".join(groups)}


def is_one_of(address: str, networks: Iterable[str]) -> bool:
    """Whether an address belongs to one of some networks."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    plain = getattr(found, "ipv4_mapped", None) or found
    return any(plain in ipaddress.ip_network(network, strict=False) for network in networks)


def _sendable(values: Iterable[str]) -> bool:
    return all(value.isascii() and value.isprintable() and len(value) <= _MOST for value in values) and any(values)


def invite(way: SignIn) -> None:
    """In place of every page: how to sign in."""
    st.subheader("Sign in to see the cluster", anchor=False)
    if way.way == "oidc":
        st.markdown("Your role decides what you can see and approve. The audit keeps your name.")
        st.button("Sign in", type="primary", icon=":material/login:", on_click=st.login, key="sign_in")
    else:
        st.error("Nobody is signed in: this dashboard is open through the site's sign-in proxy alone.")
        st.caption("The proxy must stand in `dashboard, proxies` and set the header of `dashboard, person_header`.")


def badge(way: SignIn, client: ApiClient) -> None:
    """Who is signed in, and the way out: also for whom the API does not take.

    Raises:
        ApiProblem: it does not take this person, or does not answer.
    """
    with st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center", gap="small"):
        name = st.empty()
        if way.way == "oidc":
            st.button("Sign out", type="tertiary", on_click=st.logout, key="sign_out")
    caller = client.whoami()
    role = words.plain(caller.role or "no role")
    name.markdown(f":material/person: {words.named(caller.person or caller.name)} · {role}", width="content")


# What a person may not do is not drawn; the page says what is missing.
_WORDS = {
    "act:approve": "approve or withdraw hints",
    "act:stop": "stop or resume hints",
    "act:reset": "reset the breaker",
}


def lacking(caller: CallerJson) -> str | None:
    """Which buttons are absent, and why; None: none is."""
    missing = [text for scope, text in _WORDS.items() if scope not in caller.scopes]
    if not missing:
        return None
    who = f"Your role ({words.plain(caller.role or '')})" if caller.person else "The dashboard's token"
    remedy = "Ask for another role" if caller.person else "Give it the scopes"
    return f"{who} may not {_listed(missing)}: those buttons are absent. {remedy} to do it."


def _listed(parts: Sequence[str]) -> str:
    return " or ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
