"""What hangs on a line: is it reached, how much data goes through it, is it a demonstration?"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from unchoke.code.facts import stakes
from unchoke.code.program import Program
from unchoke.code.source import read_source
from unchoke.linting.lint_engine import lint

READS = "def read(path):\n    return open(path)\n"


def program_of(path: Path, text: str) -> Program:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return Program(read_source(path))


def is_reached(program: Program) -> bool:
    (call,) = program.calls_to("open")
    return stakes.is_reached(program, call)


@pytest.mark.parametrize(
    ("rest", "reached"),
    [
        ("", True),  # a module of which nobody is known
        ("read('a')\n", True),
        ("TABLE = {'r': read}\nrun(TABLE)\n", True),
        ("print('done')\n", False),  # a program that never calls it
        ("if __name__ == '__main__':\n    print('done')\n", False),
    ],
)
def test_function_is_reached_if_its_program_names_it(tmp_path: Path, rest: str, reached: bool) -> None:
    assert is_reached(program_of(tmp_path / "a.py", READS + rest)) is reached


def test_importers_tell_which_functions_are_dead(tmp_path: Path) -> None:
    program_of(tmp_path / "main.py", "from tools.convert import write\nwrite()\n")
    assert not is_reached(program_of(tmp_path / "tools/convert.py", READS + "def write():\n    pass\n"))
    program_of(tmp_path / "main2.py", "from tools.other import read\nread()\n")
    assert is_reached(program_of(tmp_path / "tools/other.py", READS))


def test_uncalled_method_of_an_own_class_is_dead(tmp_path: Path) -> None:
    owner = "class Files:\n    def read(self, path):\n        return open(path)\n    def names(self):\n        return []\n"
    assert not is_reached(program_of(tmp_path / "a.py", owner + "Files().names()\n"))
    assert is_reached(program_of(tmp_path / "b.py", owner + "Files().read('a')\n"))
    assert is_reached(program_of(tmp_path / "c.py", owner.replace("Files", "Files(Dataset)") + "Files().names()\n"))


@pytest.mark.parametrize(
    ("text", "little"),
    [
        ("data = Subset(data, range(500))\nmodel.fit(data, epochs=10)\n", True),
        ("data = Subset(data, range(50_000))\nmodel.fit(data, epochs=10)\n", False),
        ("data = data.take(1000)\nmodel.fit(data, epochs=20)\n", True),
        ("N = 1000\nnames = sorted(glob('*.jpg'))[:N]\nmodel.fit(names, epochs=25)\n", True),
        ("names = sorted(glob('*.jpg'))[:1000]\nmodel.fit(names, epochs=250)\n", False),
        ("names = sorted(glob('*.jpg'))[:1000]\nmodel.fit(names, epochs=args.epochs)\n", False),
        ("folder = 'data/balloon/train'\nmodel.fit(folder, epochs=200)\n", True),
        ("model.fit(data, epochs=2)\n", False),
    ],
)
def test_a_subset_or_a_toy_set_is_little(tmp_path: Path, text: str, little: bool) -> None:
    head = "from glob import glob\nfrom torch.utils.data import Subset\nimport keras\nmodel = keras.Sequential()\n"
    assert stakes.is_little(program_of(tmp_path / "a.py", head + text)) is little


def test_cells_of_a_gallery_are_told_from_a_script(tmp_path: Path) -> None:
    assert stakes.is_gallery(program_of(tmp_path / "a.py", "# %%\n# Load\nx = 1\n# %%\n# Show\nprint(x)\n"))
    assert not stakes.is_gallery(program_of(tmp_path / "b.py", "x = 1  # 50 %\nprint(x)\n"))


def test_circular_settings_are_unknown(tmp_path: Path) -> None:
    circle = "def a(**kw):\n    return b(**kw)\ndef b(**kw):\n    return a(**kw)\nb(pin=a)\n"
    program = program_of(tmp_path / "a.py", circle)
    calls = [call for call in program.nodes(ast.Call) if call.keywords]
    assert all(program.argument(call, "workers") is None for call in calls)
    device = "import torch\ndef move(x, device):\n    device = torch.device(device)\n    return x.to(device)\n"
    (tmp_path / "b.py").write_text(f"{device}for d in ('cpu',):\n    move(x, device)\nx.to('cuda', non_blocking=True).numpy()\n")
    assert not [item for item in lint([tmp_path], nits=True).problems if item.internal]
