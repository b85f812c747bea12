"""Which interface leads to another machine."""

from __future__ import annotations

import psutil

from unchoke.machine.interfaces import interface_towards


def test_the_loopback_leads_to_this_machine_itself():
    found = interface_towards("127.0.0.1")
    assert found is not None
    assert any(one.address == "127.0.0.1" for one in psutil.net_if_addrs()[found])


def test_a_name_that_stands_for_nothing_leads_nowhere():
    assert interface_towards("no such machine.invalid") is None
