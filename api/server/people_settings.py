"""Who signs in, and what a person may do: the site's OpenID provider, and roles by group, e-mail or subject.

    people:
      issuer: https://sso.example.com/realms/cluster
      audience: foreshock
      roles: {operator: [gpu-oncall], admin: [alice@example.com]}

This file imports nothing heavy: the dashboard reads these settings, too.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from wire.access.address import clear_text

Role: TypeAlias = Literal["viewer", "operator", "admin"]

_VIEWER = frozenset({"read"})
_OPERATOR = _VIEWER | {"act:approve", "act:stop", "report"}
# What each role may do, the least first: words of `api.server.settings.Scope`.
ROLE_SCOPES: Mapping[Role, frozenset[str]] = {
    "viewer": _VIEWER,
    "operator": _OPERATOR,
    "admin": _OPERATOR | {"act:reset", "join"},
}
# A name goes into the audit, headers and terminals: what is printed as it is, and no space.
_NAME = re.compile(r"[!-~]{1,255}")


@dataclass(frozen=True, slots=True)
class RoleMembers:
    """Of each role: values of the claim, verified e-mail addresses, and subjects (`sub`)."""

    viewer: tuple[str, ...] = ()
    operator: tuple[str, ...] = ()
    admin: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PeopleSettings:
    """The site's OpenID provider and the roles. Without an issuer, people come by a trusted proxy alone."""

    issuer: str = ""  # as the provider writes it into its tokens
    audience: str = ""  # the client id of the dashboard at the provider
    claim: str = "groups"  # of the ID token: a text, or a list of them
    roles: RoleMembers = field(default_factory=RoleMembers)

    def __post_init__(self) -> None:
        if bool(self.issuer) != bool(self.audience):
            raise ValueError("issuer and audience go together: the provider's address, and the client id at it")
        if self.issuer and not is_safe_address(self.issuer):
            raise ValueError(f"issuer {self.issuer!r}: expected https://... (http:// on the loopback alone)")
        if self.roles == RoleMembers():
            raise ValueError("roles: nobody has one: name groups, e-mail addresses or subjects of at least one role")

    def role_of(self, words: Iterable[str]) -> Role | None:
        """The highest role that one of the words has."""
        known = frozenset(words)
        for role in reversed(tuple(ROLE_SCOPES)):
            if known.intersection(getattr(self.roles, role)):
                return role
        return None


def is_safe_address(url: str) -> bool:
    """Whether what is sent there is read by nobody on the way: HTTPS, or plain HTTP on this machine."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and clear_text(url) is None


def is_person_name(text: str) -> bool:
    """Whether a name of a person can stand in the audit: printable ASCII without a space, 255 characters at most."""
    return _NAME.fullmatch(text) is not None
