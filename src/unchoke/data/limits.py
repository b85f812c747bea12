"""What unchoke does not do, said in one sentence with the tool that does it: boxes, instance masks, video, text, 3-D.

In: a folder's files by name, or a table's columns. Out: an error, or nothing. The page docs/explanations/limits.md says the same.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from unchoke.core.errors import UnchokeError, UsageError
from unchoke.core.image_names import suffix_of
from unchoke.core.input_file import parse_json
from unchoke.core.remote import DataPlace
from unchoke.core.units import format_count
from unchoke.data.image_files import FolderFiles

if TYPE_CHECKING:
    import pandas as pd

VIDEO_SUFFIXES = frozenset({".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg", ".wmv", ".flv"})
VOLUME_SUFFIXES = frozenset(
    {".nii", ".mha", ".mhd", ".nrrd", ".dcm", ".ply", ".pcd", ".las", ".laz", ".obj", ".stl", ".glb", ".off"}
)
ARCHIVE_SUFFIXES = frozenset({".zip", ".tar", ".tgz", ".7z", ".rar"})
ARRAY_SUFFIXES = frozenset({".npy", ".npz", ".h5", ".hdf5", ".mat", ".pkl", ".pickle", ".tfrecord", ".arrow", ".lmdb"})
TEXT_SUFFIXES = frozenset({".txt", ".md", ".pdf", ".docx", ".html", ".jsonl"})
_BOX_COLUMNS = ({"xmin", "ymin", "xmax", "ymax"}, {"x_min", "y_min", "x_max", "y_max"}, {"x1", "y1", "x2", "y2"}, {"bbox"},
                {"bboxes"}, {"boxes"}, {"predictionstring"}, {"objects"})  # fmt: skip
_MOST_BYTES = 300_000_000
_BY_SUFFIX = (
    ("video", VIDEO_SUFFIXES),
    ("volumes", VOLUME_SUFFIXES),
    ("archive", ARCHIVE_SUFFIXES),
    ("arrays", ARRAY_SUFFIXES),
)
_FEW_TEXTS = 3
"""So many texts are data, fewer are notes."""
_TEXT_COLUMNS = frozenset({"caption", "captions", "text", "sentence", "description", "prompt", "question", "answer"})
_KINDS = {
    "detection": (
        "boxes",
        "detection is not supported: unchoke learns one answer for a photo, or for each pixel",
        "a detector of torchvision or ultralytics; or cut the boxes out, one photo each, into class folders",
    ),
    "instances": (
        "outlines of single objects",
        "instance masks are not supported: unchoke gives each pixel a class, not an object",
        "Mask R-CNN of torchvision; or masks with a class for each pixel, and unchoke segment train PHOTOS --label MASKS",
    ),
    "video": (
        "video files",
        "video is not supported: unchoke learns from single photos",
        "ffmpeg -i VIDEO -vf fps=1 CLASS/VIDEO_%05d.jpg for each, then unchoke fit FOLDER --group path:video",
    ),
    "volumes": (
        "3-D data",
        "volumes, point clouds and meshes are not supported: unchoke learns from photos and flat rasters",
        "MONAI or nnU-Net for medical volumes, Open3D-ML for point clouds; or single slices saved as PNG",
    ),
    "archive": (
        "archives",
        "photos are read where they lie, many times over",
        "unzip FILE -d photos, or tar -xf FILE; then unchoke check photos",
    ),
    "arrays": (
        "arrays instead of photos",
        "what their axes mean is not said",
        "save them as PNG files in class folders; a Hugging Face dataset: ds.to_parquet(FILE)",
    ),
    "text": ("texts", "text is not supported: unchoke learns from photos and rasters", "transformers or scikit-learn"),
}


def _unsupported(kind: str, where: object, seen: str) -> UsageError:
    what, why, tool = _KINDS[kind]
    return UsageError(f"{where} holds {what}: {seen}", code=f"unsupported-{kind}", why=why, try_=tool)


def refuse_foreign(place: DataPlace, found: FolderFiles) -> None:
    """A folder without a single photo, full of something else."""
    if found.images:
        return
    counts = Counter(suffix_of(name.removesuffix(".gz")) for name in found.others)
    for kind, suffixes in (*_BY_SUFFIX, ("text", TEXT_SUFFIXES)):
        count = sum(counts[suffix] for suffix in suffixes)
        if count and count >= len(found.others) / 2 and (kind != "text" or count >= _FEW_TEXTS):
            raise _unsupported(kind, place, format_count(count, "file"))


def refuse_file(place: DataPlace) -> None:
    """A single file that is no table."""
    for kind, suffixes in _BY_SUFFIX:
        if suffix_of(place.name.removesuffix(".gz")) in suffixes:
            raise _unsupported(kind, place.name, "one file")
    if suffix_of(place.name) == ".json" and (kind := _kind_of_json(place)):
        if kind == "masks":
            raise _polygons(place, "PHOTOS")
        raise _unsupported(kind, place.name, "annotations in JSON")


def refuse_boxes(root: DataPlace, found: FolderFiles) -> None:
    """Photos whose annotations are boxes or outlines: COCO, Pascal VOC, YOLO, LabelMe."""
    by_suffix: dict[str, list[str]] = {}
    for name in found.others:
        by_suffix.setdefault(suffix_of(name), []).append(name)
    for name in by_suffix.get(".json", [])[:5]:
        kind = _kind_of_json(root / name)
        if kind == "masks":
            raise _polygons(root / name, str(root))
        if kind:
            raise _unsupported(kind, root, name)
    xml, txt = by_suffix.get(".xml", []), by_suffix.get(".txt", [])
    if xml and b"<bndbox" in (root / xml[0]).read_bytes():
        raise _unsupported("detection", root, f"{format_count(len(xml), 'file')} such as {xml[0]}")
    if len(txt) >= len(found.images) / 2 and (lines := _yolo_lines(root, txt)):
        kind = "instances" if all(len(line) > 5 for line in lines) else "detection"
        raise _unsupported(kind, root, f"{format_count(len(txt), 'file')} such as {txt[0]}")


def _yolo_lines(root: DataPlace, names: Sequence[str]) -> list[list[str]]:
    """The lines of some label files, where all are a class number and at least four shares."""
    lines = [line.split() for name in names[:20] for line in (root / name).read_bytes().decode("utf-8", "replace").splitlines()]
    lines = [line for line in lines if line]
    sound = all(len(line) >= 5 and line[0].isdigit() and all(re.fullmatch(r"[\d.e-]+", cell) for cell in line) for line in lines)
    return lines if sound else []


def _kind_of_json(place: DataPlace) -> str:
    """``masks``, ``detection`` or ``instances`` of a file of annotations; "" for any other."""
    try:
        data = place.read_bytes()
        if len(data) > _MOST_BYTES or not any(mark in data for mark in (b'"annotations"', b'"shapes"')):
            return ""
        found = parse_json(data)
    except (OSError, ValueError, UnchokeError):
        return ""
    if not isinstance(found, dict):
        return ""
    if isinstance(found.get("shapes"), list):
        return "instances"
    annotations = [one for one in found.get("annotations") or [] if isinstance(one, dict)]
    if any(one.get("segmentation") for one in annotations):
        return "masks"
    return "detection" if any("bbox" in one for one in annotations) else ""


def _polygons(place: DataPlace, photos: str) -> UsageError:
    return UsageError(
        f"{place.name} holds outlines of what is on the photos, not one class for each",
        code="photos-with-masks",
        why="COCO annotations with polygons or run lengths are masks",
        try_=f"unchoke segment train {shlex.quote(photos)} --label {shlex.quote(str(place))}",
    )


def refuse_box_columns(name: str, columns: Iterable[str]) -> None:
    """A table of boxes."""
    simple = {re.sub(r"[\s-]", "_", column.strip().lower()) for column in columns}
    if runs := simple & {"encodedpixels", "rle", "rle_mask", "segmentation_rle"}:
        raise UsageError(
            f"{name} holds masks as run lengths: the column {', '.join(sorted(runs))}",
            code="unsupported-run-lengths",
            why="masks are read from PNG files of the photos' size, or from COCO annotations",
            try_="write each as a PNG with a class number for each pixel, then unchoke segment train PHOTOS --label MASKS",
        )
    if found := next((wanted for wanted in _BOX_COLUMNS if wanted <= simple), None):
        raise _unsupported("detection", name, f"the columns {', '.join(sorted(found))}")


def refuse_texts(key: str, columns: Sequence[str], table: pd.DataFrame) -> None:
    """A table whose answers are sentences."""
    for name in columns:
        if name.lower() in _TEXT_COLUMNS and table[name].nunique() > len(table) / 2:
            raise _unsupported("text", "the table", f"a caption for each {key!r} in the column {name!r}")
