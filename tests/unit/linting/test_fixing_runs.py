"""A program prints the same before and after `--fix`; what cannot be proven to is not touched. The programs are run."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from tests.linted import each

from unchoke.code.source import parse_source
from unchoke.linting.fixing import FileRepair, repair
from unchoke.linting.lint_engine import lint_source
from unchoke.linting.rules import CODES, LoadedRule, load_rule

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "tests" / "specimens" / "fixing"
PROGRAMS = sorted(path.name for path in FOLDER.glob("[a-z]*.py"))
FIXED = {
    "running_loss.py": "graph-kept",
    "own_checkpoint.py": "unsafe-load",
    "pinned.py": "pin-without-cuda",
    "channels_last.py": "channels-last-unsafe",
}


@cache
def rules() -> list[LoadedRule]:
    return [load_rule(code) for code in CODES]


@cache
def fixed(name: str) -> FileRepair | None:
    return repair(str(FOLDER / name), (FOLDER / name).read_bytes(), rules())


def output(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the program prints, run as a script of torch before 2.6 (which loaded anything) in a folder of its own."""
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.chdir(folder)
    script = folder / "program.py"
    script.write_text(text, encoding="utf-8")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(script), run_name="__main__")
    sys.modules.pop("_cam_models", None)
    return printed.getvalue()


@pytest.mark.filterwarnings("ignore")
@each("name", PROGRAMS)
def test_it_prints_the_same_before_and_after(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / Path(name).stem
    folder.mkdir()
    before = output((FOLDER / name).read_text(encoding="utf-8"), folder, monkeypatch)
    assert before
    result = fixed(name)
    if result is not None:
        assert output(result.data.decode(), folder, monkeypatch) == before


def sonar(folder: Path) -> list[str]:
    """What the specimen of `graph-kept` reads."""
    import torch

    torch.manual_seed(0)
    noisy = torch.randn(70, 1, 8, 8)
    torch.save({"noisy": noisy, "clean": noisy / 2, "target": torch.randint(0, 2, (70,))}, folder / "sonar.pt")
    return []


def small_jpegs(folder: Path) -> list[str]:
    """What the planted choke of the same name reads, and how it is told."""
    from PIL import Image

    for number in range(6):
        path = folder / "jpeg_small" / f"class_{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (24, 24), (40 * number, 90, 10)).save(path)
    return ["--data", str(folder)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("path", "prepare"),
    [("tests/specimens/lint/graph-kept/bad_torch.py", sonar), ("benches/chokes/graph_kept/train.py", small_jpegs)],
    ids=["specimen", "planted choke"],
)
def test_programs_of_the_corpus_print_the_same(
    path: str, prepare: Callable[[Path], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    data = (ROOT / path).read_bytes()
    result = repair(path, data, rules())
    assert result is not None
    printed = []
    for text in (data.decode(), result.data.decode()):
        monkeypatch.setattr(sys, "argv", ["program.py", *prepare(tmp_path)])
        torch.manual_seed(1)
        told = output(text.replace("EPOCHS = 280", "EPOCHS = 60"), tmp_path, monkeypatch)
        printed.append(re.sub(r"in [\d.]+ s", "in some time", told))
    assert printed[0] == printed[1]
    assert "loss" in printed[0]


@each("name", PROGRAMS)
def test_only_what_is_proven_is_edited(name: str) -> None:
    result = fixed(name)
    codes = {item.rule.code for item in result.applied} if result is not None else set()
    assert codes == ({FIXED[name]} if name in FIXED else set())
    found, _ = lint_source(parse_source(name, (FOLDER / name).read_bytes()), rules())
    assert all(item.hit.fix for item in found), "advice in words, edited or not"


@each("name", sorted(FIXED))
def test_second_fix_changes_nothing(name: str) -> None:
    found, _ = lint_source(parse_source(name, (FOLDER / name).read_bytes()), rules())
    result = fixed(name)
    assert result is not None
    assert repair(name, result.data, rules()) is None
    left = Counter(item.rule.code for item in found) - Counter(item.rule.code for item in result.applied)
    assert Counter(item.rule.code for item in result.found) == left
    assert not result.problems
