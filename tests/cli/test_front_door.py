"""`import unchoke` as people use it: the example of every function runs, and a type checker knows what a script may write."""

from __future__ import annotations

import doctest
import os
import shutil
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import pytest
from tests.conftest import Once

import unchoke as front_door

FILE = Path(front_door.__file__)
COSTLY = {"budget", "export"}
"""What their examples do is tested in the small by the tests of these commands; the examples themselves are for the campaign."""
FUNCTIONS = [
    pytest.param(name, marks=[pytest.mark.campaign] if name in COSTLY else [])
    for name in sorted(front_door.__all__)
    if name.islower() and name != "errors"
]

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


def test_type_checker_knows_the_package(tmp_path: Path) -> None:
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
def place(once: Once, looked_at: Path, photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the examples work on: photos, a workspace, scenes, a run that draws masks, a script, a notebook, a trace."""
    made = once("cli-examples", lambda folder: make_place(folder, looked_at, photos))
    return Path(shutil.copytree(made, tmp_path_factory.mktemp("examples") / "place"))


def make_place(folder: Path, looked_at: Path, photos: Path) -> None:
    from books import write_book
    from mask_run import make_run, make_scene
    from traces import training_on_a_processor

    shutil.copytree(photos, folder / "photos")
    shutil.copytree(looked_at, folder / "finished")
    settings = folder / "finished" / "unchoke.toml"
    settings.write_text(settings.read_text().replace(str(photos), "photos"))
    with chdir(folder):  # so that no example has to start a process to see that it can load the photos
        assert front_door.check("photos", out="finished").ok
    make_scene(folder / "scenes" / "one.tif")
    make_run(folder / "mask_run")
    (folder / "train.py").write_text("import torch\nprint(torch.ones(2).sum())\n")
    write_book(folder / "leaves.ipynb", ["import torch", "torch.ones(2)"])
    training_on_a_processor().save(folder / "run.pt.trace.json")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_example_runs(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    here = str(Path(sys.executable).parent)  # the examples say `python`, as people do
    monkeypatch.setenv("PATH", os.pathsep.join([here, os.environ["PATH"]]))
    for made in ("work", "exported", "masks"):
        shutil.rmtree(made, ignore_errors=True)
    shutil.copytree("finished", "work")
    example = doctest.DocTestFinder(recurse=False).find(getattr(front_door, name), name, globs={"unchoke": front_door})[0]
    told: list[str] = []
    assert doctest.DocTestRunner().run(example, out=told.append).failed == 0, "".join(told)
