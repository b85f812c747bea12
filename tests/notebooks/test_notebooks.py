"""The notebooks run from the first cell to the last on small data, in a fresh kernel of this very interpreter."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CLASSES = {"red": (200, 40, 40), "green": (40, 200, 40), "blue": (40, 40, 200)}
CELL_TIMEOUT_S = 120


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten small noisy pictures of each colour."""
    folder = tmp_path_factory.mktemp("data") / "photos"
    random = np.random.default_rng(0)
    for name, colour in CLASSES.items():
        (folder / name).mkdir(parents=True)
        for number in range(10):
            noise = random.integers(-40, 40, (48, 64, 3))
            pixels = np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.jpg")
    return folder


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the notebooks write, as for a person who runs one after the other; each also works alone."""
    return tmp_path_factory.mktemp("notebooks") / "out"


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A kernel specification that points at the interpreter the tests run in."""
    pytest.importorskip("ipykernel")
    spec = tmp_path / "jupyter" / "kernels" / "python3"
    spec.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (spec / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "tests", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    return spec.name


def execute(name: str, *, kernel: str, photos: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The notebook with the outputs it gave."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("UNCHOKE_NOTEBOOK_DATA", str(photos))
    monkeypatch.setenv("UNCHOKE_NOTEBOOK_OUT", str(out))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # test processes share the cores
    notebook = nbformat.read(ROOT / "notebooks" / name, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=CELL_TIMEOUT_S, kernel_name=kernel, resources={"metadata": {"path": str(out.parent)}}
    )
    return client.execute()


def printed(notebook: Any) -> str:
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "\n".join(output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs)


def test_notebooks_carry_their_outputs() -> None:
    """If it fails: `make notebooks` runs them and keeps what they give."""
    nbformat = pytest.importorskip("nbformat")
    patches = "05_seg_patch_from_features.ipynb"
    names = ["02_feature_extract_microjobs.ipynb", "03_train_head_fastloop.ipynb", patches, "colab_training.ipynb"]
    assert [file.name for file in NOTEBOOKS] == names
    for file in NOTEBOOKS:
        cells = [cell for cell in nbformat.read(file, as_version=4).cells if cell.cell_type == "code"]
        assert 5 <= len(cells) <= 8
        assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
        assert sum(bool(cell.outputs) for cell in cells) >= len(cells) - 1
        outputs = [output for cell in cells for output in cell.outputs]
        assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
        assert "/tmp/" not in file.read_text(encoding="utf-8")


def test_features_are_extracted_job_by_job(kernel: str, photos: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(execute("02_feature_extract_microjobs.ipynb", kernel=kernel, photos=photos, out=out, monkeypatch=monkeypatch))
    assert "30 samples checked: sound" in text
    assert "global_pool" in text
    assert re.search(r"\(30, \d{3,}\)", text)
    assert len(list((out / "workspace" / "features").glob("*.done"))) == 1
    assert not list(out.glob("photos"))


@pytest.mark.campaign
def test_heads_are_trained_and_compared(kernel: str, photos: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(execute("03_train_head_fastloop.ipynb", kernel=kernel, photos=photos, out=out, monkeypatch=monkeypatch))
    runs = out / "workspace" / "experiments"
    assert "exp_4" in text
    assert (runs / "exp_4" / "report.html").is_file()
    assert len(json.loads((runs / "exp_4" / "record.json").read_text())["sweep"]) == 16
    assert json.loads((runs / "exp_2" / "record.json").read_text())["sweep"][0]["config"]["kind"] == "mlp"


@pytest.mark.campaign
def test_training_here_and_in_the_background(kernel: str, photos: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = out / "training" / "experiments"
    first = printed(execute("colab_training.ipynb", kernel=kernel, photos=photos, out=out, monkeypatch=monkeypatch))
    records = [json.loads((runs / name / "record.json").read_text()) for name in ("exp_1", "exp_2")]
    assert [len(json.loads((runs / name / "history.json").read_text())) for name in ("exp_1", "exp_2")] == [2, 3]
    assert [record["training"]["cut"] for record in records] == ["-4", "-4"]
    assert records[0]["memory"]["planned_bytes"] < 4_000_000_000
    assert "works in the background" in first
    assert f"report {runs / 'exp_2' / 'report.html'}" in first
    assert len((out / "predictions.csv").read_text().splitlines()) == 31

    written = {file: file.stat().st_mtime_ns for file in runs.rglob("*.pt")}
    again = printed(execute("colab_training.ipynb", kernel=kernel, photos=photos, out=out, monkeypatch=monkeypatch))
    assert {file: file.stat().st_mtime_ns for file in runs.rglob("*.pt")} == written
    assert "exp_2" in again
    assert "exp_3" not in again


@pytest.fixture(scope="module")
def clouds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One scene, one file for each of three bands, with bright clouds; `label.tif` beside it knows where they are."""
    rasterio = pytest.importorskip("rasterio")
    folder = tmp_path_factory.mktemp("clouds")
    (folder / "scenes").mkdir()
    rows, columns = np.mgrid[0:352, 0:352]
    shade = np.sin(rows / 23) + np.cos(columns / 31) + np.sin((rows + columns) / 47)
    label = np.digitize(shade, [0.6, 1.5]).astype(np.uint8)
    random = np.random.default_rng(0)
    profile = {"driver": "GTiff", "width": 352, "height": 352, "count": 1, "crs": "EPSG:32616"}
    profile["transform"] = rasterio.Affine(30, 0, 452475, 0, -30, 3408645)
    for number in (2, 3, 4):
        band = (8000 + 3000.0 * label + random.normal(0, 400, label.shape)).astype(np.uint16)
        with rasterio.open(folder / "scenes" / f"l8_B{number}.tif", "w", dtype="uint16", **profile) as file:
            file.write(band, 1)
    with rasterio.open(folder / "label.tif", "w", dtype="uint8", **profile) as file:
        file.write(label, 1)
    return folder


@pytest.mark.campaign
def test_decoder_learns_and_stitches_a_mask(kernel: str, clouds: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNCHOKE_NOTEBOOK_LABEL", str(clouds / "label.tif"))
    monkeypatch.setenv("UNCHOKE_NOTEBOOK_EPOCHS", "2")
    name = "05_seg_patch_from_features.ipynb"
    text = printed(execute(name, kernel=kernel, photos=clouds / "scenes", out=out, monkeypatch=monkeypatch))
    record = json.loads((out / "masks" / "experiments" / "exp_1" / "record.json").read_text())
    assert record["task"] == {"kind": "segmentation", "names": ["clear", "cirrus", "cloud"]}
    assert len(record["gallery"]) >= 20
    assert "stitched samples, all in" in text
    assert "stride_32" in text
    assert "352 x 352 pixels, EPSG:32616" in text
