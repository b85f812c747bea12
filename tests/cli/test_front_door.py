"""`import unchoke` as people use it: the example of every function runs, and a type checker knows what a script may write."""

from __future__ import annotations

import doctest
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import FunctionType

import pytest

import unchoke as front_door

FILE = Path(front_door.__file__)
FUNCTIONS = sorted(name for name in front_door.__all__ if isinstance(getattr(front_door, name), FunctionType))

SCRIPT = """
from pathlib import Path

import unchoke

result = unchoke.fit(Path("photos"), out="work", epochs=3, head="mlp", images=["a", Path("b")])
name: str = result.run
page: Path = result.report
ok: bool = unchoke.check("photos").ok
rows = unchoke.predict(name, ["photos"], out="work").rows
try:
    unchoke.tile("scenes", tile_size=256)
except unchoke.DataError as error:
    reason: str = error.why
"""
QUICK = """[mypy]
ignore_missing_imports = true
follow_imports = skip
[mypy-unchoke.*]
follow_imports = silent
"""
"""What unchoke says of itself is read, what torch says of itself is not: that takes a minute."""
WRONG = {
    'unchoke.fit("photos", epoch=3)': "call-arg",
    'unchoke.fit("photos", epochs="3")': "arg-type",
    'unchoke.fit("photos", head="forest")': "arg-type",
    'unchoke.fit("photos").name': "attr-defined",
    "unchoke.fitt": "attr-defined",
    'unchoke.segment_train("scenes", mixup=0.1)': "call-arg",
}


def test_a_users_script_is_type_checked_against_the_package(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT + "\n".join(WRONG) + "\n")
    assert (FILE.parent / "py.typed").exists()
    (tmp_path / "mypy.ini").write_text(QUICK)
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--cache-dir", str(tmp_path), str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path,
                          env={**os.environ, "MYPYPATH": str(FILE.parents[1])})  # fmt: skip
    first = SCRIPT.count("\n") + 1
    told = {int(line.split(":")[1]): line for line in done.stdout.splitlines() if ": error: " in line}
    assert sorted(told) == list(range(first, first + len(WRONG))), done.stdout
    for line, code in enumerate(WRONG.values(), first):
        assert told[line].endswith(f"[{code}]")


@pytest.fixture(scope="module")
def place(finished: Path, photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the examples work on: photos, scenes, a run that draws masks, a script, a notebook, a trace."""
    from books import write_book
    from mask_run import make_run, make_scene
    from traces import training_on_a_processor

    folder = tmp_path_factory.mktemp("examples")
    shutil.copytree(photos, folder / "photos")
    make_scene(folder / "scenes" / "one.tif")
    make_run(folder / "mask_run")
    (folder / "train.py").write_text("import torch\nprint(torch.ones(2).sum())\n")
    write_book(folder / "leaves.ipynb", ["import torch", "torch.ones(2)"])
    training_on_a_processor().save(folder / "run.pt.trace.json")
    return folder


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_of_each_runs(name: str, place: Path, finished: Path, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    here = str(Path(sys.executable).parent)  # the examples say `python`, as people do
    monkeypatch.setenv("PATH", os.pathsep.join([here, os.environ["PATH"]]))
    for made in ("work", "exported", "masks"):
        shutil.rmtree(made, ignore_errors=True)
    shutil.copytree(finished, "work")
    settings = Path("work/unchoke.toml")
    settings.write_text(settings.read_text().replace(str(photos), "photos"))
    example = doctest.DocTestFinder(recurse=False).find(getattr(front_door, name), name, globs={"unchoke": front_door})[0]
    told: list[str] = []
    assert doctest.DocTestRunner().run(example, out=told.append).failed == 0, "".join(told)
