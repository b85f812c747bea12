from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unchoke.core.temporary_folders import scratch_folder

KEEPS = "import os, signal\nfrom unchoke.core.temporary_folders import keep_scratch\nprint(keep_scratch('some'), flush=True)\n"


def test_a_folder_lives_as_long_as_its_block() -> None:
    with scratch_folder("some") as folder:
        (folder / "file").write_text("x")
    assert not folder.exists()
    assert folder.name.startswith("some-") and folder.parent.name.startswith("unchoke-")


@pytest.mark.parametrize("end", ["", "os._exit(0)", "os.kill(os.getpid(), getattr(signal, 'SIGKILL', signal.SIGTERM))"])
def test_nothing_is_left_however_a_process_ends(end: str, tmp_path: Path) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path), "PATH": ""}  # no shell is asked for help
    with subprocess.Popen([sys.executable, "-c", KEEPS + end], env=env, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout and child.stdout.read().startswith(str(tmp_path))
        limit_s = time.monotonic() + 30
        while any(tmp_path.iterdir()) and time.monotonic() < limit_s:  # nobody has waited for the child so far
            time.sleep(0.05)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks there")
def test_a_fork_that_ends_takes_nothing_with_it(tmp_path: Path) -> None:
    code = KEEPS + "pid = os.fork()\nif pid:\n    os.waitpid(pid, 0)\n    print(os.path.isdir(keep_scratch('more')))\n"
    ended = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True
    )
    assert ended.stdout.splitlines()[-1] == "True", ended.stderr
