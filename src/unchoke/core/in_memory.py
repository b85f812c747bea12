"""Data that is in memory, written down once: photos and a table in the workspace, on which every command works as on any table.

In: a DataFrame, pairs of path (or picture) and label, a torch dataset, a Hugging Face dataset or a dict of its splits. Out: the
path of the table. Names are made of contents: the same data is the same files, so that a command given it again goes on.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unchoke.core import atomic
from unchoke.core.errors import UsageError
from unchoke.core.urls import is_url

if TYPE_CHECKING:
    import pandas as pd

_SUFFIXES = {b"\xff\xd8": ".jpg", b"\x89P": ".png", b"RI": ".webp", b"GI": ".gif", b"BM": ".bmp", b"II": ".tif", b"MM": ".tif"}


def write_data(data: Any, folder: Path) -> tuple[str, dict[str, Any]]:
    """The table that stands for `data`, below `folder`, and the settings that it implies."""
    frame = _as_frame(data)
    photos = _Photos(folder / "photos")
    for name in frame.columns:
        cells = frame[name]
        if cells.dtype.kind in "OTU" or str(cells.dtype) in ("str", "string"):
            frame[name] = [photos.place(cell) for cell in cells]
    content = frame.to_csv(index=False).encode("utf-8", "surrogateescape")
    table = folder / f"table-{hashlib.sha256(content).hexdigest()[:16]}.csv"
    if not table.exists():
        atomic.write_bytes(table, content)
    implied: dict[str, Any] = {"target": ("target",)} if list(frame.columns) == ["path", "target"] else {}
    return str(table), implied | ({"multi_label": True} if photos.lists else {})


def _as_frame(data: Any) -> pd.DataFrame:
    import pandas as pd

    if isinstance(data, pd.DataFrame):
        return data.reset_index() if data.index.name else data.copy()
    if isinstance(data, Mapping) and data and all(hasattr(part, "column_names") for part in data.values()):
        return pd.concat([_as_frame(part).assign(split=name) for name, part in data.items()], ignore_index=True)
    if hasattr(data, "column_names") and hasattr(data, "features"):  # of Hugging Face
        for name, feature in data.features.items():
            if type(feature).__name__ == "Image":
                data = data.cast_column(name, type(feature)(decode=False))  # the bytes of the file, not decoded pixels
        frame = pd.DataFrame(list(data), columns=data.column_names)
        for name, feature in data.features.items():
            if names := getattr(feature, "names", None):
                frame[name] = [names[number] if isinstance(number, int) and number >= 0 else None for number in frame[name]]
        return frame
    if hasattr(data, "__len__") and hasattr(data, "__getitem__") and not isinstance(data, Mapping | bytes):
        pairs = list(_pairs(data))
        column = "target" if pairs and all(isinstance(label, float) for _, label in pairs) else "label"
        return pd.DataFrame({"path": pd.Series([path for path, _ in pairs], dtype=object), column: [label for _, label in pairs]})
    raise _no_data(f"a {type(data).__name__}", "it is none of the kinds of data that are known here")


def _pairs(data: Any) -> Iterator[tuple[Any, Any]]:
    """Picture and label of each item; a folder of torchvision's is read by its files, whatever transforms it has."""
    classes = getattr(data, "classes", None)
    files = getattr(data, "samples", None) if classes is not None else None
    items: Iterable[Any] = files if isinstance(files, list) else (data[number] for number in range(len(data)))
    for number, item in enumerate(items):
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise _no_data(f"item {number}", f"it is a {type(item).__name__}, where a picture and its label are wanted")
        picture, label = item
        with suppress(ValueError, RuntimeError):  # of arrays and tensors that are more than one number
            label = label.item() if hasattr(label, "item") else label
        if classes is not None and getattr(label, "ndim", 0) == 1 and len(label) == len(classes):  # 0 or 1 for each
            label = [name for name, one in zip(classes, label, strict=True) if one]
        if not isinstance(label, str | int | float | list | tuple):
            raise _no_data(
                f"the label of item {number}",
                f"it is a {type(label).__name__}, where a name, a number or a list of names is wanted",
            )
        yield picture, classes[label] if classes is not None and isinstance(label, int) else label


class _Photos:
    """Where pictures are written, each under a name made of its content."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._seen = folder, Counter[str]()
        self.lists = False
        """Whether some cell was a list, which is several labels."""

    def place(self, cell: Any) -> Any:
        """A cell as a table holds it: a picture as the path of its file, a path so that it is found from anywhere."""
        import numpy as np

        if isinstance(cell, dict) and cell.keys() >= {"bytes", "path"}:  # as Hugging Face keeps a picture
            cell = cell["bytes"] if cell["bytes"] is not None else cell["path"]
        if isinstance(cell, os.PathLike):
            return str(Path(cell).absolute())
        if isinstance(cell, str):
            return str(Path(cell).absolute()) if not is_url(cell) and cell and len(cell) < 4096 and _is_file(cell) else cell
        if isinstance(cell, bytes):
            return self._write(hashlib.sha256(cell).hexdigest(), _SUFFIXES.get(cell[:2], ".img"), lambda: cell)
        if hasattr(cell, "convert"):  # of Pillow
            cell = np.asarray(cell.convert("RGB"))
        if hasattr(cell, "detach"):
            cell = cell.detach().cpu().numpy()
        if isinstance(cell, list | tuple | set) or (isinstance(cell, np.ndarray) and cell.ndim == 1):
            self.lists |= any(isinstance(label, str) for label in cell)
            return "|".join(str(label) for label in cell) or "none"
        if not isinstance(cell, np.ndarray):
            return cell
        pixels = _as_pixels(cell)
        digest = hashlib.sha256(repr(pixels.shape).encode() + pixels.tobytes()).hexdigest()
        return self._write(digest, ".png", lambda: _encode(pixels))

    def _write(self, digest: str, suffix: str, encode: Any) -> str:
        """The same picture in another row has a file of its own, so that the checks see both."""
        self._seen[digest] += 1
        again = f"-{self._seen[digest]}" if self._seen[digest] > 1 else ""
        file = self._folder / f"{digest[:16]}{again}{suffix}"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            atomic.write_with(file, lambda opened: opened.write(encode()), durable=False)
        return str(file.absolute())


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # a text that can be no name
        return False


def _as_pixels(array: Any) -> Any:
    """(height, width) or (height, width, RGB) in uint8, of what may be channels first, or from 0 to 1."""
    import numpy as np

    if array.ndim == 3 and array.shape[0] in (1, 3) and array.shape[2] not in (1, 3, 4):
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.dtype.kind == "f" and array.size and array.min() >= 0 and array.max() <= 1:
        array = np.round(array * 255).astype(np.uint8)
    if array.dtype != np.uint8 or array.ndim not in (2, 3) or not array.size:
        raise UsageError(
            f"an array of {array.dtype} {array.shape} is no picture",
            code="not-a-picture",
            why="pictures are (height, width, RGB) or (RGB, height, width), whole numbers from 0 to 255 or shares from 0 to 1",
            try_="give the dataset without Normalize: unchoke resizes and normalises by itself",
        )
    return np.ascontiguousarray(array)


def _encode(pixels: Any) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def _no_data(what: str, why: str) -> UsageError:
    return UsageError(
        f"{what} cannot be trained on",
        code="unknown-data",
        why=why,
        try_="a folder, a table, a DataFrame, pairs of path and label, a Hugging Face dataset, or a torch dataset of such pairs",
    )
