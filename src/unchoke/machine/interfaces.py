"""Which of this machine's network interfaces leads to another machine."""

from __future__ import annotations

import socket

_ANY_PORT = 9


def interface_towards(address: str) -> str | None:
    """The name of the interface that packets to `address` leave by, `eth0` for instance; None where that cannot be told."""
    import psutil

    try:
        family, _, _, _, target = socket.getaddrinfo(address, _ANY_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)  # nothing is sent: the system only chooses a way
            own = probe.getsockname()[0]
    except OSError:
        return None
    listed = psutil.net_if_addrs().items()
    return next((name for name, addresses in listed if any(one.address.partition("%")[0] == own for one in addresses)), None)
