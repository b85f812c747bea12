"""What holds for every rule: evidence, notes, marks in the code, fixes, and how the findings of a file are put together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.doctor.conftest import SLOW, book_of

from unchoke_doctor.lint import CODES, LintResult, lint, run_lint

PIPELINE = """\
import tensorflow as tf
# Größe
def load(path):
    return tf.io.decode_jpeg(tf.io.read_file(path))
data = tf.data.Dataset.list_files("photos/*").map(load).batch(32)
tf.keras.Sequential([]).fit(data, epochs=9)
"""
FIXED = PIPELINE.replace(".map(load)", ".map(load, num_parallel_calls=tf.data.AUTOTUNE)").replace(
    ".batch(32)", ".batch(32).prefetch(tf.data.AUTOTUNE)"
)


def write(file: Path, text: str | bytes) -> str:
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(file)


def codes(result: LintResult) -> set[str]:
    return {finding.code for finding in result.findings}


def test_loaders_of_two_cells_are_shown_each_in_its_cell(tmp_path: Path) -> None:
    head = "from torch.utils.data import DataLoader\nfrom torchvision.datasets import ImageFolder\n"
    cell = "loader = DataLoader(ImageFolder(a), batch_size=32, shuffle=True)"
    shorter = "loader = DataLoader(ImageFolder(a), batch_size=8)"
    result = run_lint([write(tmp_path / "book.ipynb", book_of(f"{head}{cell}", f"\n\n{shorter}"))], select=["no-workers"])
    (item,) = result.found
    assert item.diff[0] == f"- {cell}" and len(item.diff) == 2


# Notes, marks, evidence ---------------------------------------------------------------------------------------------------


def test_notes_are_counted_and_shown_on_request(tmp_path: Path) -> None:
    file = write(tmp_path / "train.py", SLOW)
    quiet, loud, one = run_lint([file]), run_lint([file], notes=True), run_lint([file], select=["no-mixed-precision"])
    assert "no-mixed-precision" not in codes(quiet) and quiet.num_hidden_notes > 0
    assert "no-mixed-precision" in codes(loud) and loud.num_hidden_notes == 0
    assert codes(one) == {"no-mixed-precision"}
    assert [finding.to_dict() for finding in lint(file, notes=True).findings] == [item.to_dict() for item in loud.findings]


@pytest.mark.parametrize(
    ("mark", "left"),
    [("# noqa", False), ("# noqa: no-workers", False), ("# noqa: E501, no-workers", False), ("# unchoke: ignore", False),
     ("# unchoke: ignore[no-workers]", False), ("# noqa: host-sync", True), ("# no workers here", True)],
)  # fmt: skip
def test_marked_lines_are_left_out(tmp_path: Path, mark: str, left: bool) -> None:
    text = SLOW.replace("shuffle=True)", f"shuffle=True)  {mark}")
    assert ("no-workers" in codes(run_lint([write(tmp_path / "train.py", text)]))) is left
    assert ("no-workers" in codes(run_lint([write(tmp_path / "book.ipynb", book_of(text))]))) is left


def test_gain_needs_a_measurement_or_outputs(tmp_path: Path) -> None:
    for finding in run_lint([write(tmp_path / "train.py", SLOW)], notes=True).findings:
        assert finding.basis == "code" and not finding.expected_gain, finding.code


def test_outputs_are_evidence_of_the_finding(tmp_path: Path) -> None:
    book = json.loads(book_of(SLOW))
    text = "Epoch 1 took 120 s\nEpoch 2 took 118 s\n12000 images\n"
    book["cells"][0]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": text}]
    found = {one.code: one for one in run_lint([write(tmp_path / "book.ipynb", json.dumps(book))]).findings}
    assert found["no-workers"].basis == "outputs"
    assert {key: found["no-workers"].evidence[key] for key in ("epoch_s", "images")} == {"epoch_s": 120.0, "images": 12000}


def test_same_place_and_stage_is_one_finding(tmp_path: Path) -> None:
    text = "import torch\nmodel = Net()\nfor epoch in range(20):\n    for x in loader:\n        model(x).sum().backward()\n"
    found = run_lint([write(tmp_path / "train.py", text)], notes=True).findings
    assert len({(one.line, one.stage) for one in found}) == len(found)
    assert {one.code for one in found} | {other["code"] for one in found for other in one.evidence.get("also", ())} >= {
        "never-on-gpu", "no-checkpoint", "no-mixed-precision",
    }  # fmt: skip


def test_same_fact_at_several_places_is_one_finding(tmp_path: Path) -> None:
    text = SLOW.replace("model =", "loader2 = DataLoader(data, batch_size=8)\nmodel =") + "\nprint(len(loader2))\n"
    found = [one for one in run_lint([write(tmp_path / "train.py", text)]).findings if one.code == "no-workers"]
    assert [(one.line, one.evidence["further"]) for one in found] == [(7, [{"cell": None, "line": 8}])]


# Fixes --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encoding", "line_end"), [("utf-8", "\n"), ("utf-8-sig", "\r\n"), ("latin-1", "\n"), ("utf-16", "\n"), ("utf-8", "\r")]
)
def test_fix_keeps_every_other_byte_of_a_script(tmp_path: Path, encoding: str, line_end: str) -> None:
    head = "# coding: latin-1\n" if encoding == "latin-1" else ""
    before, after = ((head + text).replace("\n", line_end).encode(encoding) for text in (PIPELINE, FIXED))
    file = tmp_path / "train.py"
    result = run_lint([write(file, before)], fix=True)
    assert (file.read_bytes(), result.fixed[0].num_fixed) == (after, 1)
    assert "no-prefetch" not in codes(result)
    assert not run_lint([str(file)], fix=True).fixed
    assert file.read_bytes() == after


@pytest.mark.parametrize("layout", [{"indent": 1, "ensure_ascii": False}, {"indent": 2}, {}, {"separators": (",", ":")}])
@pytest.mark.parametrize("as_list", [True, False])
def test_fix_keeps_every_other_byte_of_a_notebook(tmp_path: Path, layout: dict[str, object], as_list: bool) -> None:
    book = json.loads(book_of("#:<b>Größe</b> & more", PIPELINE, "print('<&>')"))
    for cell in book["cells"] if as_list else ():
        cell["source"] = cell["source"].splitlines(keepends=True)
    for end in ("\n", ""):
        for html in (False, True):
            before = json.dumps(book, **layout) + end  # type: ignore[arg-type]
            if html:  # as Colab writes
                before = before.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
            file = tmp_path / "book.ipynb"
            assert run_lint([write(file, before)], fix=True).fixed[0].num_fixed == 1
            after = file.read_text(encoding="utf-8")
            assert after.replace(", num_parallel_calls=tf.data.AUTOTUNE", "").replace(".prefetch(tf.data.AUTOTUNE)", "") == before
            assert not run_lint([str(file)], fix=True).fixed


def test_notebook_in_a_layout_of_its_own_is_left_alone(tmp_path: Path) -> None:
    before = book_of(PIPELINE).replace('"metadata"', '"metadata"   ', 1)
    file = tmp_path / "book.ipynb"
    result = run_lint([write(file, before)], fix=True)
    assert (file.read_text(), result.fixed, "no-prefetch" in codes(result)) == (before, [], True)


def test_diff_shows_and_does_not_write(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    result = run_lint([write(file, PIPELINE)], diff=True)
    assert "+data = " in result.fixed[0].diff and not result.written
    assert file.read_text() == PIPELINE


@pytest.mark.parametrize(
    "text",
    [
        SLOW,  # the number of workers is the author's choice
        PIPELINE.replace("return ", "return tf.image.random_flip_left_right(").replace("(path))", "(path)))"),  # random order
        "import tensorflow as tf\ndata = tf.keras.utils.image_dataset_from_directory('a')\nprint(data.class_names)\n"
        "tf.keras.Sequential([]).fit(data, epochs=9)\n",  # prefetch has no class_names
        "import torch\ndef evaluate(model, loader):\n    for x in loader:\n        model(x)\n",  # a caller may need gradients
    ],
)
def test_fix_without_proof_is_only_shown(tmp_path: Path, text: str) -> None:
    file = tmp_path / "train.py"
    result = run_lint([write(file, text)], fix=True, select=["no-workers", "no-prefetch", "no-inference-mode"])
    assert (file.read_text(), result.fixed) == (text, [])
    assert all(item.diff and not item.edits for item in result.found) and result.found


# Programs of several files ------------------------------------------------------------------------------------------------


def test_neighbours_are_read(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    write(tmp_path / "pkg" / "__init__.py", "from .data import Photos\n")
    dataset = "import cv2\nfrom torch.utils.data import Dataset\nclass Photos(Dataset):\n    def __getitem__(self, i):\n"
    write(tmp_path / "pkg" / "data.py", f"{dataset}        return cv2.imread(self.paths[i])\n")
    write(tmp_path / "config.py", "WORKERS = 0\n")
    text = (
        "import config\nfrom pkg import Photos\nfrom torch.utils.data import DataLoader\n"
        "loader = DataLoader(Photos(), num_workers=config.WORKERS)\n"
    )
    for name, made in (("train.py", text), ("book.ipynb", book_of(text))):
        found = run_lint([write(tmp_path / name, made)], select=["no-workers"]).findings
        assert [(one.line, "Photos.__getitem__" in one.message) for one in found] == [(4, True)]


def test_training_in_another_file_shows_where_it_is_called(tmp_path: Path) -> None:
    write(tmp_path / "engine.py", "def run(net, loader):\n    for x in loader:\n        net(x).sum().backward()\n")
    text = "import torch\nfrom engine import run\nnet = Net()\nfor epoch in range(40):\n    run(net, loader)\n"
    found = run_lint([write(tmp_path / "train.py", text)], select=["no-checkpoint", "never-on-gpu"]).findings
    assert {(one.code, one.line) for one in found} == {("no-checkpoint", 4), ("never-on-gpu", 5)}


def test_script_that_a_notebook_writes_and_runs(tmp_path: Path) -> None:
    book = book_of("!pip install timm", f"%%writefile train.py\n{SLOW}", "!python train.py --epochs 50", "%run helper.py")
    found = run_lint([write(tmp_path / "book.ipynb", book)], select=["no-workers"]).findings
    assert [(one.cell, one.line) for one in found] == [(2, 8)]


def test_rules_are_sixteen_and_have_a_cause() -> None:
    from unchoke_doctor.causes import catalogue

    assert len(CODES) == len(set(CODES)) == 16
    assert set(CODES) <= set(catalogue())
