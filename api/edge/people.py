"""Who a person is, by the ID token of the site's provider or by the word of a token that may name people.

    Authorization: Bearer ID_TOKEN                          the person's own sign-in
    Authorization: Bearer TOKEN
    Foreshock-Person: alice@example.com                     a proxy's word, by a token with `on_behalf`
    Foreshock-Groups: gpu-oncall,gpu-users

An ID token is verified here: signature by the provider's published keys, issuer, audience, expiry. What may stand in
for a person's name is the verified e-mail address, else the subject: never what a person may choose for itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fastapi.concurrency import run_in_threadpool
from joserfc import jwt
from joserfc.errors import ExpiredTokenError, JoseError
from joserfc.jws import extract_compact

from api.server.people_settings import PeopleSettings, Role, is_person_name
from api.server.provider_keys import ProviderKeys
from api.server.state import State

PERSON_HEADER = "foreshock-person"
GROUPS_HEADER = "foreshock-groups"
# Signatures by a private key alone: the published key makes none of them, as it would with HS256.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
_NOT_SIGN_INS = ("at+jwt", "logout+jwt", "application/at+jwt", "application/logout+jwt")
_LEEWAY_S = 60
_MOST_CHARACTERS = 16_384
_MOST_GROUPS = 1000


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who signed in, and the role that the configuration gives."""

    name: str
    role: Role


class SignInError(Exception):
    """A sign-in that is refused; `reason` is a word for the counter, the message a sentence for the person."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def is_id_token(text: str) -> bool:
    """Whether a bearer's text has the form of one: three parts, the first a JSON object in base64url."""
    return text.startswith("eyJ") and text.count(".") == 2


async def signed_in(server: State, people: PeopleSettings, text: str) -> Person:
    """The person of an ID token.

    Raises:
        SignInError: it is forged, expired, of another issuer or for another audience; or the person has no role.
        ProviderAwayError: the provider's keys cannot be read, and none are known.
    """
    kid = _key_name(text)
    keys = server.provider_keys
    if keys.is_fresh(people.issuer, kid):
        return person_of(text, people, keys, server.wall())
    return await run_in_threadpool(person_of, text, people, keys, server.wall())


def person_of(text: str, people: PeopleSettings, keys: ProviderKeys, now: datetime) -> Person:
    """The person of an ID token; may ask the provider for its keys. See `signed_in`."""
    key = keys.of(people.issuer, _key_name(text))
    if key is None:
        raise SignInError("unknown_key", "the sign-in is signed with a key that the provider does not publish")
    rules = jwt.JWTClaimsRegistry(
        now=int(now.timestamp()),
        leeway=_LEEWAY_S,
        iss={"essential": True, "value": people.issuer},
        aud={"essential": True, "value": people.audience},
        sub={"essential": True},
        exp={"essential": True},
        iat={"essential": True},
    )
    try:
        token = jwt.decode(text, key, algorithms=ALGORITHMS)
        rules.validate(token.claims)
    except ExpiredTokenError as error:
        raise SignInError("expired", "the sign-in is over: sign in again") from error
    except (JoseError, ValueError, TypeError) as error:
        raise SignInError("invalid", f"the sign-in does not hold ({error})") from error
    _refuse_others(token.header, token.claims, people.audience)
    name = _name(token.claims)
    return _with_role(name, people, [*_texts(token.claims.get(people.claim)), *_names(token.claims)])


def named_person(people: PeopleSettings, name: str, groups: str) -> Person:
    """The person that a trusted proxy names.

    Raises:
        SignInError: it is no name, or the person has no role.
    """
    if not is_person_name(name):
        raise SignInError("no_name", f"{PERSON_HEADER}: expected a name of printable ASCII without a space")
    words = [word.strip() for word in groups.split(",")[:_MOST_GROUPS]]
    return _with_role(name, people, [name, *(word for word in words if word)])


def _with_role(name: str, people: PeopleSettings, words: Sequence[str]) -> Person:
    role = people.role_of(words)
    if role is None:
        raise SignInError("no_role", f"{name} has no role here: ask for a group that `people, roles` names")
    return Person(name, role)


def _key_name(text: str) -> str | None:
    """Which key it says it is signed with.

    Raises:
        SignInError: it is no token at all.
    """
    if len(text) > _MOST_CHARACTERS:
        raise SignInError("invalid", f"the sign-in has over {_MOST_CHARACTERS} characters")
    try:
        kid = extract_compact(text.encode()).headers().get("kid")
    except (JoseError, ValueError, TypeError) as error:
        raise SignInError("invalid", f"the sign-in cannot be read ({error})") from error
    return kid if isinstance(kid, str) else None


def _refuse_others(header: Mapping[str, Any], claims: Mapping[str, Any], audience: str) -> None:
    """What the same provider signs for the same audience, and is no sign-in: access tokens, logout tokens."""
    if str(header.get("typ", "JWT")).lower() in _NOT_SIGN_INS or "events" in claims:
        raise SignInError("invalid", "the token is none of a sign-in: send the ID token")
    several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
    if ("azp" in claims or several) and claims.get("azp") != audience:
        raise SignInError("invalid", "the sign-in was made for another program")


def _names(claims: Mapping[str, Any]) -> list[str]:
    """The names by which a configuration may give a role: the verified e-mail address, and the subject."""
    email = claims.get("email")
    verified = isinstance(email, str) and claims.get("email_verified") is True
    return [str(email), str(claims["sub"])] if verified else [str(claims["sub"])]


def _name(claims: Mapping[str, Any]) -> str:
    name = next((each for each in _names(claims) if is_person_name(each)), None)
    if name is None:
        raise SignInError("no_name", "the sign-in has no subject of printable ASCII without a space")
    return name


def _texts(value: Any) -> list[str]:
    found = value if isinstance(value, list) else [value]
    return [each for each in found[:_MOST_GROUPS] if isinstance(each, str)]
