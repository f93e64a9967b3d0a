"""Which addresses a message may go to: a name is resolved once an attempt, and that very address is connected to.

The operator's file names the receivers, but not what their names resolve to: whoever answers for a name could turn
our messages to a service of the site itself (server-side request forgery). Therefore

- never: metadata services of clouds, multicast, unspecified and reserved addresses;
- link-local: only where `allow` names the network;
- loopback: where the URL says so itself (a literal address, `localhost`), or `allow` names the network;
- private networks: also over https, whose certificate proves that the name's owner answers;
- all others: yes.

An IPv4 address inside an IPv6 one (mapped, 6to4, NAT64) is judged as the IPv4 address that it leads to.
"""

import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

# Who asks these gets the machine's credentials: AWS, GCP, Azure, Oracle (link-local), AWS over IPv6, Alibaba, Oracle.
METADATA = frozenset(
    ipaddress.ip_address(text) for text in ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "192.0.0.192")
)
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_SHARED = ipaddress.ip_network("100.64.0.0/10")  # of carriers; some clouds number their insides with it


class AddressRefusedError(ValueError):
    """No address of a receiver may be connected to; the message says why and what to set."""


@dataclass(frozen=True, slots=True)
class Guard:
    """What the operator allows, and how the receiver is addressed. `literal`: the URL names the address itself."""

    allow: tuple[Network, ...] = ()
    literal: bool = False
    secure: bool = False  # https

    def why_not(self, address: Address) -> str | None:
        """Why an address is refused; None where it is not."""
        led = _led_to(address)
        if led in METADATA:
            return "a cloud's metadata service"
        if led.is_multicast or led.is_unspecified or _is_reserved(led):
            return "no address of one machine"
        if any(led in network for network in self.allow if network.version == led.version):
            return None
        if led.is_link_local:
            return "link-local"
        if led.is_loopback:
            return None if self.literal else "loopback"
        if led.is_private or (led.version == 4 and led in _SHARED):
            return None if self.literal or self.secure else "private, and plain http proves nothing"
        return None


def networks(allow: Sequence[str]) -> tuple[Network, ...]:
    """The networks of a setting: `10.0.0.0/8`, `127.0.0.1`.

    Raises:
        ValueError: one is none; the message names it.
    """
    return tuple(ipaddress.ip_network(text, strict=False) for text in allow)


def is_literal(host: str) -> bool:
    """Whether a URL's host is an address itself, or `localhost`."""
    if host.rstrip(".").lower() == "localhost":
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def permitted(host: str, port: int, guard: Guard) -> list[str]:
    """The addresses of a host that may be connected to, in the resolver's order.

    Raises:
        AddressRefusedError: none of them may.
        OSError: the name does not resolve.
    """
    found = [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    refused = {text: guard.why_not(ipaddress.ip_address(text)) for text in dict.fromkeys(found)}
    kept = [text for text, why in refused.items() if why is None]
    if not kept:
        said = "; ".join(f"{text} is {why}" for text, why in refused.items())
        raise AddressRefusedError(f"{host} is not connected to: {said} (docs/webhooks.md, `allow`)")
    return kept


def _led_to(address: Address) -> Address:
    """The address that packets end at."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and address in _NAT64:
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return inner or address


def _is_reserved(address: Address) -> bool:
    # Of IPv6 all that is not handed out yet is "reserved", ::1 and what embeds IPv4 with it.
    return address.is_reserved and not address.is_loopback
