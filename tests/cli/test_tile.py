"""`unchoke tile` as it is typed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Type


@pytest.fixture
def scenes(tmp_path: Path) -> Path:
    """One scene of two bands."""
    import rasterio
    from rasterio.transform import from_origin

    folder = tmp_path / "scenes"
    folder.mkdir()
    noise = np.random.default_rng(0)
    shape = {"height": 100, "width": 90, "count": 1, "dtype": "uint16", "nodata": 0}
    place = {"crs": "EPSG:32633", "transform": from_origin(5e5, 4e6, 30, 30)}
    for band in ("B3", "B5"):
        with rasterio.open(folder / f"LC08_x_{band}.TIF", "w", driver="GTiff", **shape, **place) as file:
            file.write(noise.integers(1, 9000, (100, 90), dtype=np.uint16), 1)
    return folder


def test_the_answer_is_one_json_object(unchoke: Type, scenes: Path, tmp_path: Path) -> None:
    typed = ["--mask", "(B3-B5)/(B3+B5) > 0", "--tile-size", "64", "--workers", "1"]
    answer = unchoke("tile", scenes, "--out", tmp_path / "work", *typed, "--json")
    assert answer.code == 0, answer.stdout
    result = answer.result
    assert (answer.last["command"], result["tiles"], result["skipped"], result["already_done"]) == ("tile", 4, 0, False)
    assert Path(result["manifest"]).is_file()
    assert result["workspace"] == str(tmp_path / "work")
    assert [row["stage"] for row in result["stages"]] == ["open", "read", "normalise", "mask", "write"]
    assert {"findings", "timings", "choices", "scenes", "splits", "set_aside"} <= result.keys()
    chosen = {line["name"] for line in answer.lines[:-1] if line.get("event") == "chosen"}
    assert {"grid", "normalise", "compress", "parallel", "block_px"} <= chosen or chosen == set()


def test_choices_on_stderr_and_result_on_stdout(unchoke: Type, scenes: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    answer = unchoke("tile", scenes, "--out", work, "--mask", "B3 > B5", "--tile-size", "64", "--workers", "1", "--verbose")
    assert answer.code == 0, answer.stderr
    assert all(f"{name} = " in answer.stderr for name in ("grid", "normalise", "compress", "parallel", "block_px"))
    assert "4 tiles of 1 scene" in answer.stdout
    assert f"unchoke segment train {scenes} --out {work}" in answer.stdout
    again = unchoke("tile", "--out", work)
    assert (again.code, "4 tiles" in again.stdout) == (0, True), again.stderr
    assert unchoke("tile", "--out", work, "--json").result["already_done"]


def test_a_rehearsal_says_what_would_be_done(unchoke: Type, scenes: Path, tmp_path: Path) -> None:
    answer = unchoke("tile", scenes, "--out", tmp_path / "work", "--tile-size", "64", "--dry-run")
    assert answer.code == 0, answer.stderr
    assert "4 tiles" in answer.stdout
    assert not (tmp_path / "work" / "tiles").exists()


def test_unreadable_scene_is_1_and_others_are_done(unchoke: Type, scenes: Path, tmp_path: Path) -> None:
    for band in ("B3", "B5"):
        (scenes / f"LC08_bad_{band}.TIF").write_bytes(b"not a picture")
    answer = unchoke("tile", scenes, "--out", tmp_path / "work", "--tile-size", "64", "--workers", "1", "--compress", "isal")
    assert answer.code == 1
    assert "LC08_bad" in answer.stdout
    assert "4 tiles of 1 scene" in answer.stdout


@pytest.mark.parametrize(
    ("typed", "code", "said"),
    [
        (["--mask", "B3 > > B5"], "bad-mask-formula", "--mask"),
        (["--mask", "B9 > 0"], "bad-mask-formula", "B9"),
        (["--overlap", "64"], "bad-overlap", "64"),
        (["--tile-size", "big"], "bad-settings", "tile_size"),
        (["--compress", "gzip"], "bad-settings", "compress"),
        (["--normalise", "B3=10"], "bad-normalise", "B5"),
    ],
)
def test_mistyped_option(unchoke: Type, scenes: Path, tmp_path: Path, typed: list[str], code: str, said: str) -> None:
    size = [] if "--tile-size" in typed else ["--tile-size", "64"]
    answer = unchoke("tile", scenes, "--out", tmp_path / "work", *size, *typed)
    assert answer.code == 2, answer.stderr
    assert f"[{code}]" in answer.stderr, answer.stderr
    assert said in answer.stderr


def test_an_empty_folder_is_explained(unchoke: Type, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    answer = unchoke("tile", tmp_path / "nothing", "--out", tmp_path / "work")
    assert answer.code == 1
    assert "[no-scenes]" in answer.stderr
    assert str(tmp_path / "nothing") in answer.stderr
