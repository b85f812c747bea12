"""What a library's text settles, and what only its callers do."""

from __future__ import annotations

from pathlib import Path

import pytest

from unchoke.code.source import read_source
from unchoke.linting.library import is_library
from unchoke.linting.lint_engine import lint

LISTS = """import pandas, torch
from torch.utils.data import Dataset
class Leaves(Dataset):
    def __getitem__(self, i):
        return pandas.read_csv("leaves.csv").loc[i]
"""
MAIN = 'if __name__ == "__main__":\n    main()\n'


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__in__", "__init__").replace("_DIR_", "/")
        path = path.with_suffix(".toml") if path.name == "pyproject" else path.with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


BUILT = "[build-system]\nrequires = []\n"


@pytest.mark.parametrize(
    ("file", "files", "expected"),
    [
        ("leaf/data.py", {"pyproject": BUILT, "leaf_DIR___in__": ""}, True),
        ("src/leaf/io/data.py", {"setup": "", "src_DIR_leaf_DIR___in__": ""}, True),
        ("leaf/data.py", {"leaf_DIR___in__": "from leaf.data import Leaves"}, True),
        ("leaf/data.py", {"leaf_DIR___in__": ""}, False),
        ("leaf/data.py", {"leaf_DIR___in__": "from leaf.data import Leaves", "train": ""}, False),
        ("leaf/data.py", {"pyproject": "[project]\nname = 'leaf'\n", "leaf_DIR___in__": ""}, False),
        ("leaf/examples/data.py", {"pyproject": BUILT, "leaf_DIR___in__": "", "leaf_DIR_examples_DIR___in__": ""}, False),
        ("data.py", {"pyproject": BUILT}, False),
    ],
)
def test_a_library_is_a_package_that_others_install(tmp_path: Path, file: str, files: dict[str, str], expected: bool) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    write(tmp_path, **files)
    (tmp_path / file).write_text(LISTS)
    assert is_library(read_source(tmp_path / file)) is expected
    kinds = [finding.kind for finding in lint([tmp_path / file], nits=True).findings if finding.code == "parsed-per-sample"]
    assert kinds == ["nit" if expected else "choke"]


def test_a_script_named_for_what_it_starts_is_a_program(tmp_path: Path) -> None:
    write(tmp_path, setup="", leaf_DIR___in__="", leaf_DIR_train=LISTS + MAIN, leaf_DIR_data=LISTS + MAIN, leaf_DIR_predict=LISTS)
    assert [is_library(read_source(tmp_path / "leaf" / name)) for name in ("train.py", "data.py", "predict.py")] == [
        False, True, True,
    ]  # fmt: skip


def test_what_a_function_does_whoever_calls_it_stays_a_risk(tmp_path: Path) -> None:
    write(tmp_path, setup="", leaf_DIR___in__="", leaf_DIR_loss="import torch\ndef loss(x, y):\n    return x - y.cuda()\n")
    assert [finding.kind for finding in lint([tmp_path]).findings] == ["risk"]


def test_one_fact_is_one_finding(tmp_path: Path) -> None:
    text = "import torch\ndef read(url):\n    path = torch.hub.download_url_to_file(url, 'a.pt')\n"
    text += "".join(f"    {name}.load_state_dict(torch.load(path, weights_only=False))\n" for name in "abc")
    (tmp_path / "a.py").write_text(text)
    (finding,) = lint([tmp_path]).findings
    assert finding.line == 4 and finding.message.endswith("here and in 2 more lines")
    assert finding.evidence["lines"] == [4, 5, 6]
