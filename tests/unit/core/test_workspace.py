"""One command owns a workspace at a time, and nothing is written outside it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from errors import refused
from unchoke.core.errors import UsageError
from unchoke.core.workspace import Workspace, safe_name

HOLD = """
import sys
from pathlib import Path
from unchoke.core.workspace import Workspace
with Workspace(Path(sys.argv[1])).own():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_every_path_lies_below_the_root(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    properties = [name for name, value in vars(Workspace).items() if hasattr(value, "__get__") and name.islower()]
    properties = [name for name in properties if isinstance(getattr(workspace, name), Path)]
    assert len(properties) >= 9
    assert all(getattr(workspace, name).is_relative_to(tmp_path) for name in properties)
    assert workspace.run_folder("exp_1") == tmp_path / "experiments" / "exp_1"


@pytest.mark.parametrize("relative", ["../escape", "a/../b", "/etc/passwd", "link/x", "a\\..\\b", "C:/x", ""])
def test_a_path_that_leaves_the_workspace_is_refused(tmp_path: Path, relative: str) -> None:
    root = tmp_path / "out"
    root.mkdir()
    (root / "link").symlink_to(tmp_path, target_is_directory=True)
    with refused("outside-workspace", repr(relative)):
        Workspace(root).inside(relative)
    assert Workspace(root).inside("a/b.txt") == root / "a" / "b.txt"


def test_second_process_is_told_the_owner(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        with refused("workspace-in-use", str(tmp_path)) as caught, Workspace(tmp_path).own():
            pass
        assert f"process {child.pid}" in caught.value.why
        assert Workspace(tmp_path).is_owned()
    finally:
        child.kill()
        child.communicate()
    assert not Workspace(tmp_path).is_owned()
    with Workspace(tmp_path).own():
        assert Workspace(tmp_path).is_owned()
        assert (tmp_path / ".owner").read_text() == str(os.getpid())


def test_asking_for_the_owner_leaves_nothing(tmp_path: Path) -> None:
    assert not Workspace(tmp_path).is_owned()
    assert not list(tmp_path.iterdir())


def test_the_workspace_is_free_again_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Workspace(tmp_path).own():
        _ = 1 / 0
    with Workspace(tmp_path).own():
        pass


@pytest.mark.parametrize(
    ("text", "name"),
    [("tf_efficientnet_lite0", "tf_efficientnet_lite0"), ("a/b\\c:d", "a_b_c_d"), ("..", "_"), ("", "_"), ("ü ñ", "_")],
)
def test_a_safe_name_is_never_a_path_and_never_empty(text: str, name: str) -> None:
    assert safe_name(text) == name


def test_command_that_wrote_nothing_leaves_no_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for root in (tmp_path / "new", tmp_path / "deep" / "er", tmp_path / "mine" / "new"):
        with refused("of-a-test"), Workspace(root).own():
            raise UsageError("no such folder", code="of-a-test", why="", try_="")
        assert sorted(path.name for path in tmp_path.rglob("*")) == ["mine"]


def test_what_a_command_wrote_before_it_failed_stays(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "new")
    with refused("of-a-test"), workspace.own():
        workspace.manifest_file.write_text("rows")
        raise UsageError("a wrong option", code="of-a-test", why="", try_="")
    assert workspace.manifest_file.read_text() == "rows"
    with refused("of-a-test"), Workspace(tmp_path).own():
        raise UsageError("the folder was there before", code="of-a-test", why="", try_="")
    assert workspace.lock_file.exists()


def test_a_pipe_in_the_place_of_the_owners_note_is_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".owner")
    with Workspace(tmp_path).own():
        assert (tmp_path / ".owner").read_text() == str(os.getpid())
