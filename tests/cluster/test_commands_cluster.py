"""Commands on a real cluster give the bytes of one machine, also where no node sees a single file of theirs."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster_work import signal_driver, until
from raynet import RayNet

import unchoke
from unchoke.core.events import Event, Progress, ignore

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.usefixtures("one_torch_thread"),
]  # as on the nodes, which have one core each


def make_scene(folder: Path, name: str, *, height: int, width: int, seed: int) -> None:
    """Two bands of noise, as Landsat names them, and what lies beside them: their nodata is in a sidecar alone."""
    import rasterio
    from rasterio.transform import from_origin

    folder.mkdir(parents=True, exist_ok=True)
    kind = {"driver": "GTiff", "dtype": "uint16", "count": 1, "height": height, "width": width}
    place = {"crs": "EPSG:32633", "transform": from_origin(500_000.0 + 100_000 * seed, 4_600_000.0, 30.0, 30.0)}
    for number, band in enumerate(("B3", "B5")):
        pixels = np.random.default_rng(10 * seed + number).integers(0, 3000, (height, width), dtype=np.uint16)
        pixels[: height // 2, : width // 3] = 7
        file = folder / f"{name}_{band}.TIF"
        with rasterio.open(file, "w", **kind, **place, tiled=True, blockxsize=64, blockysize=64, compress="deflate") as target:
            target.write(pixels, 1)
        nodata = '<PAMDataset><PAMRasterBand band="1"><NoDataValue>7</NoDataValue></PAMRasterBand></PAMDataset>'
        file.with_name(f"{file.name}.aux.xml").write_text(nodata)


def make_scenes(folder: Path) -> Path:
    make_scene(folder, "alpha", height=600, width=300, seed=1)
    make_scene(folder, "beta", height=200, width=500, seed=2)
    make_scene(folder, "torn", height=300, width=300, seed=3)
    torn = folder / "torn_B5.TIF"
    torn.write_bytes(torn.read_bytes()[: torn.stat().st_size * 2 // 3])  # some of its blocks are beyond the end
    return folder


def make_pictures(folder: Path) -> Path:
    """Two scenes for masks, one of several bands."""
    from mask_run import make_scene as make_picture

    make_picture(folder / "north.tif", height=1300, width=90)
    make_picture(folder / "south.tif", height=150, width=220, seed=1)
    return folder


def gather(photos: Path, to: Path, *, copies: int = 4) -> Path:
    """Photos, two of which are none; four copies are more than fit in two chunks."""
    for number in range(copies):
        shutil.copytree(photos, to / str(number))
    (to / "0" / "torn.jpg").write_bytes(b"nothing like a picture")
    (to / "1" / "empty.jpg").write_bytes(b"")
    return to


def typed(net: RayNet, *words: object, code: int = 0) -> list[dict[str, Any]]:
    """A command on the head; its events, and last its result."""
    done = net.run(0, sys.executable, "-m", "unchoke", *map(str, words), "--on", "auto", "--json")
    assert done.returncode == code, done.stdout[-2000:] + done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def node_facts(events: list[dict[str, Any]]) -> set[tuple[bool, str]]:
    """Whether nodes read by themselves, and how they agreed with this machine."""
    (choice,) = [event for event in events if event.get("name") == "nodes"]
    return {(one["reads"], one["agreement"]) for one in choice["evidence"].values()}


def kill_when(net: RayNet, seen: Callable[[], bool], *words: object) -> None:
    """A command on the head, killed as soon as `seen`."""
    started = net.popen(0, sys.executable, "-m", "unchoke", *map(str, words), "--on", "auto")
    until(seen, process=started)
    assert started.poll() is None, "it ended before it could be killed"
    signal_driver(started)
    started.wait()


def cut(scenes: Path, out: Path) -> dict[str, bytes]:
    unchoke.tile(str(scenes), out=out, tile_size=64, mask="B3 > B5", compress="zlib", workers=1, on_event=ignore)
    return tiles(out)


def tiles(out: Path) -> dict[str, bytes]:
    """Tiles, records of strips, plan, manifest and what was set aside."""
    folder = out / "tiles"
    files = [*folder.rglob("*.npz"), *folder.rglob("strip_*.json"), *folder.glob("*.csv")]
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def masks(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file() and not file.name.startswith(".")}


def test_tiles_are_those_of_one_machine_also_after_a_kill(pair: RayNet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # nodes stand elsewhere, and find the scenes all the same
    scenes, out = make_scenes(Path("scenes")), Path("out")
    words = ("tile", scenes, "--out", out, "--tile-size", "64", "--mask", "B3 > B5", "--compress", "zlib")

    def done() -> dict[str, int]:
        return {file.name: file.stat().st_mtime_ns for file in (out / "tiles").glob("job_*.done")}

    kill_when(pair, lambda: len(done()) >= 2, *words)
    before = done()
    told = typed(pair, *words, code=1)
    assert node_facts(told) == {(True, "")} and "parallel" not in {event.get("name") for event in told}
    assert before.items() <= done().items(), "a finished strip was done again"
    assert tiles(out) == cut(scenes, Path("here"))


def test_masks_are_those_of_one_machine_which_began_them(pair: RayNet, tmp_path: Path) -> None:
    from mask_run import make_run

    run, pictures = make_run(tmp_path / "run"), make_pictures(tmp_path / "pictures")

    def stop_soon(event: Event) -> None:
        if isinstance(event, Progress) and event.done >= 32:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unchoke.segment_predict(run, pictures, to=tmp_path / "masks", on_event=stop_soon)
    assert any((tmp_path / "masks").rglob("part_*.npz"))
    told = typed(pair, "segment", "predict", run, pictures, "--to", tmp_path / "masks")
    assert node_facts(told) == {(True, "same bits")}
    assert any("were finished before" in event.get("text", "") for event in told)
    unchoke.segment_predict(run, pictures, to=tmp_path / "here", on_event=ignore)
    assert masks(tmp_path / "masks") == masks(tmp_path / "here")
    assert not (tmp_path / "masks" / ".unfinished").exists()


def test_predictions_are_those_of_one_machine(pair: RayNet, workspace: Path, photos: Path, tmp_path: Path) -> None:
    images = gather(photos, tmp_path / "images")
    told = typed(pair, "predict", "latest", images, "--out", workspace, "--to", tmp_path / "there.csv", code=1)
    assert {reads for reads, _ in node_facts(told)} == {True}
    here = unchoke.predict("latest", [images], out=workspace, to=tmp_path / "here.csv", on_event=ignore)
    assert (tmp_path / "there.csv").read_bytes() == (tmp_path / "here.csv").read_bytes()
    assert len(here.rows) == 4 * 42 + 2
    assert told[-1]["result"]["failed"] == here.failed and len(here.failed) == 2


FROM_OUTSIDE = """
import sys
import unchoke
from unchoke.core.events import Chosen
root, on = sys.argv[1:]
def tell(event):
    if isinstance(event, Chosen) and event.choice.name == "nodes":
        print([one["reads"] for one in event.choice.evidence.values()])
unchoke.tile(f"{root}/scenes", out=f"{root}/out", tile_size=64, mask="B3 > B5", compress="zlib", on=on, on_event=tell)
unchoke.predict("latest", [f"{root}/images"], out=f"{root}/work", to=f"{root}/there.csv", on=on, on_event=tell)
"""


def test_what_no_node_sees_is_sent(pair: RayNet, hidden: Path, finished: Path, photos: Path) -> None:
    root = hidden / "commands"
    scenes = make_scenes(root / "scenes")
    images, work = gather(photos, root / "images", copies=2), Path(shutil.copytree(finished, root / "work"))
    before = sent_folders()
    done = pair.run(pair.num, sys.executable, "-c", FROM_OUTSIDE, str(root), pair.client_address)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert len(done.stdout.splitlines()) == 2 and "True" not in done.stdout
    assert tiles(root / "out") == cut(scenes, root / "here"), "a broken scene is told of by the name it has here"
    unchoke.predict("latest", [images], out=work, to=root / "here.csv", on_event=ignore)
    assert (root / "there.csv").read_bytes() == (root / "here.csv").read_bytes()
    assert sent_folders() == before, "what was sent goes with the hosts"


def sent_folders() -> set[str]:
    """What the nodes keep of files that were sent to them: their /tmp is that of this machine."""
    return {folder.name for folder in Path(tempfile.gettempdir()).glob("unchoke-*/sent-*")}
