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


def typed(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "unchoke", "ui", *words, "--no-browser"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.system
def test_ctrl_c_is_how_it_ends_and_says_what_came_of_it(workspace: Path) -> None:
    with serve(workspace) as served:
        assert served.address.startswith("http://127.0.0.1:")
        served.process.send_signal(signal.SIGINT)
        out, _ = served.process.communicate(timeout=30)
        assert served.process.returncode == 0
    assert '"num_decisions": 0' in out


@pytest.mark.system
def test_it_listens_on_this_machine_alone(workspace: Path) -> None:
    with serve(workspace) as served:
        port = int(served.base.rpartition(":")[2])
        others = [address[4][0] for address in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
        for address in {one for one in others if not str(one).startswith("127.")}:
            with pytest.raises(OSError), socket.create_connection((address, port), timeout=2):
                pass


def test_a_port_that_is_taken_is_said_in_three_lines(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = typed("--port", str(taken.getsockname()[1]), "--out", str(tmp_path))
    assert done.returncode == 2
    assert "leave --port out" in done.stderr


def test_a_port_that_cannot_be_is_said(tmp_path: Path) -> None:
    done = typed("--port", "70000", "--out", str(tmp_path))
    assert done.returncode == 2
    assert "there is no port 70000" in done.stderr


def test_without_the_extra_it_says_which_to_install(unchoke: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "starlette", None)
    done = unchoke("ui", "--out", tmp_path, "--no-browser")
    assert done.code == 3
    assert "pip install 'unchoke[ui]'" in done.stderr


def test_another_host_says_what_that_means(tmp_path: Path) -> None:
    """The address is one that this machine does not have, so that nothing is opened to others."""
    done = typed("--host", "192.0.2.1", "--out", str(tmp_path))
    assert done.returncode == 2
    assert "nothing is encrypted" in done.stderr
    assert "token" in done.stderr


def test_an_empty_host_is_refused(tmp_path: Path) -> None:
    assert typed("--host", "", "--out", str(tmp_path)).returncode == 2


@pytest.mark.system
def test_a_workspace_that_is_not_there_is_said(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "unchoke", "ui", "--no-browser", "--out", str(tmp_path / "typo")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        told = [process.stderr.readline() for _ in range(2)]
        process.send_signal(signal.SIGINT)
    assert "there is no workspace" in told[0]
    assert not (tmp_path / "typo").exists()
