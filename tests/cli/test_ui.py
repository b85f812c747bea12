"""`unchoke ui` on the command line: its address, its end, and what is said when it cannot be."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pages import serve

if TYPE_CHECKING:
    from tests.cli.conftest import Type


def test_local_address_and_ctrl_c(workspace: Path) -> None:
    with serve(workspace) as served:
        assert served.address.startswith("http://127.0.0.1:")
        port = int(served.base.rpartition(":")[2])
        others = [address[4][0] for address in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
        for address in {one for one in others if not str(one).startswith("127.")}:
            with pytest.raises(OSError), socket.create_connection((address, port), timeout=2):
                pass
        served.process.send_signal(signal.SIGINT)
        out, _ = served.process.communicate(timeout=30)
        assert served.process.returncode == 0
    assert '"num_decisions": 0' in out


def test_port_that_is_taken(unchoke: Type, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = unchoke("ui", "--no-browser", "--port", port, "--out", tmp_path)
    assert done.code == 2
    assert "[address-in-use]" in done.stderr
    assert str(port) in done.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--port", "70000"], "bad-port"),
        (["--host", ""], "bad-host"),
        (["--host", "192.0.2.1"], "address-in-use"),  # this machine does not have it, so nothing is opened to others
    ],
)
def test_impossible_addresses(unchoke: Type, tmp_path: Path, words: list[str], code: str) -> None:
    done = unchoke("ui", "--no-browser", *words, "--out", tmp_path)
    assert done.code == 2
    assert f"[{code}]" in done.stderr
    assert words[1] in done.stderr
    assert ("token" in done.stderr) == (code == "address-in-use")  # what it means to let others in


def test_without_the_extra(unchoke: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "starlette", None)
    done = unchoke("ui", "--out", tmp_path, "--no-browser")
    assert done.code == 3
    assert "[missing-extra]" in done.stderr
    assert "pip install 'unchoke[ui]'" in done.stderr


def test_workspace_that_is_not_there(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "unchoke", "ui", "--no-browser", "--out", str(tmp_path / "typo")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        told = [process.stderr.readline() for _ in range(2)]
        process.send_signal(signal.SIGINT)
    assert told[0].startswith("warning") and str(tmp_path / "typo") in told[0]
    assert not (tmp_path / "typo").exists()
