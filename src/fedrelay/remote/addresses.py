"""Where a server is."""

from __future__ import annotations

import ipaddress

from fedrelay.errors import BadInput


def host_of(address: str) -> str:
    """The host in HOST:PORT."""
    host, colon, port = address.rpartition(":")
    numbered = port.isascii() and port.isdigit() and int(port) <= 65535
    if not colon or not host or not numbered or "/" in host or len(host.split()) != 1 or host != host.strip():
        raise BadInput(f"{address!r:.100} is no address: expected HOST:PORT, such as 127.0.0.1:8470")
    return host.strip("[]")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
