"""The server's configuration: defaults, overridden by a YAML file, overridden by the environment."""

import ipaddress
from pathlib import Path

from api.settings import ApiSettings


def load_settings(file: Path | None) -> ApiSettings:
    """Settings (for now the defaults)."""
    _ = file
    return ApiSettings()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
