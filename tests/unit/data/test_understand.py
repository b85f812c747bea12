"""Every row of docs/reference/data.md on data made here: what is chosen, or the code of the error that stops."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from errors import refused
from unchoke.core.errors import UnchokeError
from unchoke.data.sample_set import DataSource, Scan
from unchoke.data.scan import scan_samples

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "data.md"
RNG = np.random.default_rng(0)


@dataclass
class Folder:
    """A folder to be filled."""

    root: Path

    def place(self, name: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def photos(self, *folders: str, num: int = 6, name: str = "{}.jpg") -> None:
        for folder in folders:
            for number in range(num):
                Image.fromarray(RNG.integers(0, 255, (24, 32, 3), dtype=np.uint8)).save(
                    self.place(f"{folder}/{name.format(number)}")
                )

    def masks(self, folder: str, num: int = 6, name: str = "{}.png") -> None:
        for number in range(num):
            Image.fromarray(RNG.integers(0, 3, (24, 32), dtype=np.uint8)).save(self.place(f"{folder}/{name.format(number)}"))

    def text(self, name: str, text: str | bytes | Iterable[str]) -> None:
        text = text if isinstance(text, str | bytes) else "\n".join(text)
        self.place(name).write_bytes(text if isinstance(text, bytes) else text.encode())


def rows(header: str, line: Callable[[int], str], num: int = 12) -> list[str]:
    return [header, *map(line, range(num))]


def coco(folder: Folder, **annotation: Any) -> None:
    folder.photos("images")
    annotations = [{"image_id": number, "bbox": [1, 2, 3, 4], **annotation} for number in range(6)]
    folder.text("annotations.json", json.dumps({"images": [], "annotations": annotations}))


def jpeg() -> bytes:
    data = io.BytesIO()
    Image.fromarray(RNG.integers(0, 255, (24, 32, 3), dtype=np.uint8)).save(data, "JPEG")
    return data.getvalue()


def parquet(folder: Folder) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for split in ("train", "test"):
        table = pa.Table.from_pylist([{"image": {"bytes": jpeg(), "path": None}, "label": number % 2} for number in range(6)])
        features = {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
        pq.write_table(table, folder.place(f"data/{split}-00000-of-00001.parquet"))


def metadata(folder: Folder) -> None:
    for split in ("train", "test"):
        folder.photos(split)
        lines = [json.dumps({"file_name": f"{number}.jpg", "label": "ab"[number % 2]}) for number in range(6)]
        folder.text(f"{split}/metadata.jsonl", lines)


def frames(folder: Folder) -> None:
    folder.photos(*(f"video_{number:02d}" for number in range(4)), name="frame_{:05d}.jpg")


def loose(folder: Folder) -> None:
    folder.photos(".", num=20, name="loose{}.jpg")
    folder.photos("cat", "dog", num=3)


def voc(folder: Folder) -> None:
    folder.photos("JPEGImages", name="2007_{:06d}.jpg")
    folder.masks("SegmentationClass", name="2007_{:06d}.png")


def photos_and_masks(folder: Folder) -> None:
    for split in ("train", "val"):
        folder.photos(f"images/{split}")
        folder.masks(f"masks/{split}", name="{}_mask.png")


def masks_beside(folder: Folder) -> None:
    for kind in ("benign", "malignant"):
        folder.photos(kind, name=f"{kind} ({{}}).png")
        folder.masks(kind, name=f"{kind} ({{}})_mask.png")


def boxes_in_xml(folder: Folder) -> None:
    folder.photos("JPEGImages")
    for number in range(6):
        folder.text(f"Annotations/{number}.xml", "<annotation><object><bndbox/></object></annotation>")


def yolo(folder: Folder) -> None:
    for split in ("train", "val"):
        folder.photos(f"images/{split}")
        for number in range(6):
            folder.text(f"labels/{split}/{number}.txt", "0 0.5 0.5 0.1 0.2\n")


def box_table(folder: Folder) -> None:
    folder.photos("train", num=12)
    folder.text("train.csv", rows("image_id,bbox", lambda number: f'{number}.jpg,"[1, 2, 3, 4]"'))


def kaggle(folder: Folder) -> None:
    folder.photos("train_images", num=12)
    folder.photos("test_images", name="t{}.jpg")
    folder.text("train.csv", rows("image_id,label", lambda number: f"{number}.jpg,{number % 3}"))
    folder.text("sample_submission.csv", rows("image_id,label", lambda number: f"t{number}.jpg,0", num=6))


def tables(folder: Folder) -> None:
    folder.photos("images", num=12)
    for name, letters in (("colours.csv", "rg"), ("sizes.csv", "sl")):
        folder.text(name, ["file,label", *(f"{number}.jpg,{letters[number % 2]}" for number in range(12))])


def table(folder: Folder, lines: Iterable[str] | bytes, *, name: str = "labels.csv", where: str = ".") -> None:
    folder.photos(where, num=12)
    folder.text(name, lines)


def table_for_each_split(folder: Folder) -> None:
    for split, num in (("train", 12), ("val", 4), ("test", 4)):
        folder.photos("images", num=num, name=f"{split}{{}}.jpg")
        folder.text(f"{split}.csv", ["filename,label", *(f"{split}{number}.jpg,{'ab'[number % 2]}" for number in range(num))])


def asked_for(folder: Folder) -> None:
    folder.photos("train", num=24)
    folder.photos("test", num=3, name="t{}.jpg")
    folder.text("train.csv", rows("Id,score,eyes", lambda number: f"{number},{3 * number},1", num=24))
    folder.text("sample_submission.csv", rows("Id,score", lambda number: f"t{number},50", num=3))


def pets(folder: Folder) -> None:
    folder.photos("images", name="beagle_{}.jpg")
    folder.masks("annotations/trimaps", name="beagle_{}.png")
    folder.text("annotations/list.txt", "beagle_0 1 1 1")


def excel(folder: Folder) -> None:
    import pandas as pd

    folder.photos(".", num=12)
    frame = pd.DataFrame({"path": [f"{number}.jpg" for number in range(12)], "label": ["a", "b"] * 6})
    frame.to_excel(folder.place("labels.xlsx"), index=False)


def heic(folder: Folder) -> None:
    import pillow_heif

    pillow_heif.register_heif_opener()
    folder.photos("cat", "dog", name="IMG_{}.HEIC")


def rasters(folder: Folder) -> None:
    rasterio = pytest.importorskip("rasterio")
    for number in range(3):
        with rasterio.open(
            folder.place(f"{number}.tif"), "w", driver="GTiff", width=8, height=8, count=7, dtype="uint16"
        ) as file:
            file.write(RNG.integers(0, 9999, (7, 8, 8)).astype("uint16"))


def classes_and_table(folder: Folder) -> None:
    for colour in ("red", "blue"):
        folder.photos(colour, name=f"{colour}{{}}.jpg")
    names = [f"{colour}{number}.jpg" for colour in ("red", "blue") for number in range(6)]
    folder.text("labels.csv", ["file,label", *(f"{name},{'xxy'[place % 3]}" for place, name in enumerate(names))])


def some(folder: Folder, *names: str) -> None:
    for name in names:
        folder.text(name, b"x")


CP1252 = "\n".join(rows("path;label", lambda n: f"{n}.jpg;{('Käfer', 'Biene')[n % 2]}")).encode("cp1252")
KINDS: dict[str, Callable[[Folder], None]] = {
    "class folders": lambda folder: folder.photos("cat", "dog"),
    "class folders in a folder that holds nothing else": lambda folder: folder.photos("set/images/cat", "set/images/dog"),
    "folders `train`, `val`, `test` with class folders": lambda folder: folder.photos(
        *(f"{split}/{kind}" for split in ("train", "Valid", "test") for kind in ("cat", "dog"))
    ),
    "class folders with `train` and `test` in each": lambda folder: folder.photos(
        *(f"{kind}/{split}" for split in ("train", "test") for kind in ("cat", "dog"))
    ),
    "class folders with a folder for each patient": lambda folder: folder.photos(
        *(f"{kind}/patient_{kind}{number}" for kind in ("sick", "well") for number in range(4)), num=3
    ),
    "folders in folders (`Tomato/healthy`, `Potato/blight`)": lambda folder: folder.photos(
        "Tomato/healthy", "Tomato/blight", "Potato/healthy", "Potato/blight"
    ),
    "folders of recordings with frames (`video_01/frame_001.jpg`)": frames,
    "class folders with a folder `test` among them": lambda folder: folder.photos("cat", "dog", "test"),
    "photos in one folder, the class in their names": lambda folder: (
        folder.photos(".", name="iris_{}.jpg"),
        folder.photos(".", name="rose_{}.jpg"),
    )[0],
    "more photos beside the class folders than in them": loose,
    "Pascal VOC (`JPEGImages/`, `SegmentationClass/`)": voc,
    "a folder of photos and one of masks": photos_and_masks,
    "photos in one folder, masks in a folder below another": pets,
    "class folders with masks beside the photos": masks_beside,
    "COCO annotations with polygons": lambda folder: coco(folder, segmentation=[[1, 2, 3, 4, 5, 6]]),
    "COCO annotations with boxes alone": coco,
    "Pascal VOC boxes in XML": boxes_in_xml,
    "YOLO labels": yolo,
    "a table of boxes": box_table,
    "Kaggle: `train.csv`, `train_images`, `test_images`, `sample_submission.csv`": kaggle,
    "a table beside a folder of photos": lambda folder: table(
        folder, rows("filename;class", lambda n: f"{n}.jpg;{'ab'[n % 2]}"), where="images"
    ),
    "`train.csv`, `val.csv` and `test.csv` beside the photos": table_for_each_split,
    "a list without a header (`images/1.jpg 0`)": lambda folder: table(
        folder, [f"images/{n}.jpg {n % 2}" for n in range(12)], name="train.txt", where="images"
    ),
    "a table with one other column, of numbers with fractions": lambda folder: table(
        folder, rows("file,price", lambda n: f"{n}.jpg,{1.5 * n}"), where="images"
    ),
    "whole numbers that `sample_submission.csv` asks for": asked_for,
    "captions": lambda folder: table(folder, rows("image,caption", lambda n: f"{n}.jpg,a dog runs {n}"), name="captions.txt"),
    "a table beside class folders that says something else": classes_and_table,
    "two tables that both name the photos": tables,
    "Hugging Face `metadata.jsonl` in `train` and `test`": metadata,
    "Hugging Face Parquet with pictures inside": parquet,
    "a CSV in cp1252, semicolons between its cells": lambda folder: table(folder, CP1252),
    "an Excel table": excel,
    "a column of 0 and 1 for each class, a single 1 in each row": lambda folder: table(
        folder, rows("image,MEL,NV,BCC", lambda n: f"{n},{float(n % 3 == 0)},{float(n % 3 == 1)},{float(n % 3 == 2)}")
    ),
    "columns of 0 and 1, several in a row": lambda folder: table(
        folder, rows("image,cat,dog,bird", lambda n: f"{n},{n % 2},{int(n % 3 == 0)},{int(n % 5 == 0)}")
    ),
    r"several labels in a cell (`a\|b`)": lambda folder: table(
        folder, rows("path,label", lambda n: f"{n}.jpg,{('a|b', 'a', 'b', 'a|c', 'c')[n % 5]}")
    ),
    "the same, and `--multi-label`": lambda folder: table(
        folder, rows("path,label", lambda n: f"{n}.jpg,{('a|b', 'a', 'b')[n % 3]}")
    ),
    'a list of labels in a cell (`["a", "b"]`)': lambda folder: table(
        folder, rows("path;label", lambda n: f"{n}.jpg;" + ('["a", "b"]', "[]", '["b"]')[n % 3])
    ),
    "columns of 0 and 1, several in a row, and `--multi-label`": lambda folder: table(
        folder, rows("image,cat,dog,bird", lambda n: f"{n},{n % 2},{int(n % 3 == 0)},{int(n % 5 == 0)}")
    ),
    "a row for each photo and label, and `--multi-label`": lambda folder: table(
        folder, [*rows("path,label", lambda n: f"{n}.jpg,{'ab'[n % 2]}"), "0.jpg,b", "1.jpg,a"]
    ),
    "class folders, and `--multi-label`": lambda folder: folder.photos("cat", "dog"),
    "HEIC photos in class folders": heic,
    "rasters with many bands": rasters,
    "videos": lambda folder: some(folder, "a/1.mp4", "a/2.mov", "b/3.mp4"),
    "3-D volumes": lambda folder: some(folder, "1.nii.gz", "2.nii.gz"),
    "an archive": lambda folder: some(folder, "photos.zip", "readme.txt"),
    "arrays (`.npy`, `.h5`)": lambda folder: some(folder, "X.npy", "y.npy"),
    "texts": lambda folder: some(folder, "pos/1.txt", "pos/2.txt", "neg/3.txt"),
}


def documented() -> dict[str, str]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and not line.startswith("| Kind")]
    cells = [re.split(r"(?<!\\) \| ", line.strip("| ")) for line in lines]
    return {name: re.search(r"`([^`]+)`", said)[1] for name, said in cells}  # type: ignore[index]


def outcome(scan: Scan) -> set[str]:
    errors = {finding.code for finding in scan.findings if finding.severity == "error"}
    return errors or {str(choice.value) for choice in scan.choices}


def scan(folder: Folder, **options: Any) -> Scan:
    return scan_samples(DataSource(folder.root, unpack_to=folder.root.parent / "unpacked", **options))


def test_every_row_has_data() -> None:
    assert list(documented()) == list(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_what_happens_is_what_the_page_says(kind: str, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    KINDS[kind](folder)
    try:
        found = outcome(scan(folder, multi_label="--multi-label" in kind or None))
    except UnchokeError as error:
        found = {error.code}
    assert documented()[kind] in found


def test_commands_of_an_ambiguous_tree_read_it_that_way(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.photos("Tomato/healthy", "Tomato/blight", "Potato/healthy")
    with refused("several-readings", "--label path:1   (2 classes", "--label path:2   (2 classes", "--label path   (3 classes"):
        scan(folder)
    names = {label: scan(folder, label=label).samples.task.names for label in ("path:1", "path:2", "path")}
    assert names["path:1"] == ("Potato", "Tomato")
    assert names["path:2"] == ("blight", "healthy")
    assert names["path"] == ("Potato/healthy", "Tomato/blight", "Tomato/healthy")


def test_masks_are_excluded_by_their_own_names(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.photos("Dataset_with_GT/benign", "Dataset_with_GT/normal", name="scan ({}).png")
    folder.masks("Dataset_with_GT/benign", name="scan ({})_mask.png")
    with refused("photos-with-masks", "--exclude '*_mask*'   (2 classes: benign 6, normal 6)"):
        scan(folder)
    assert len(scan(folder, exclude=("*_mask*",)).samples) == 12


def test_masks_of_one_folder_are_named_with_their_command(tmp_path: Path) -> None:
    beside, jpeg = Folder(tmp_path / "beside"), Folder(tmp_path / "jpeg")
    beside.photos(".", name="car_{}.jpg")
    beside.masks(".", name="car_{}_mask.png")
    with refused("photos-with-masks", f"segment train {beside.root} --label {beside.root}"):
        scan(beside)
    jpeg.photos("image")
    for number in range(6):
        shape = np.zeros((24, 32), np.uint8)
        shape[8:16, 8:16] = 255
        Image.fromarray(shape).save(jpeg.place(f"mask/{number}.jpg"))
    with refused("photos-with-masks", f"segment train {jpeg.root}/image --label {jpeg.root}/mask"):
        scan(jpeg)


def test_a_folder_beside_splits_is_offered_to_be_left_out(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.photos("all/Train/cat", "all/Train/dog", "all/Val/cat", "all/Val/dog", "all/to check")
    with refused("several-readings", "--exclude 'all/to check/*'   (2 classes: cat 12, dog 12"):
        scan(folder)
    samples = scan(folder, exclude=("all/to check/*",)).samples
    assert samples.frame["split"].value_counts().to_dict() == {"train": 12, "val": 12}


def test_names_of_files_as_classes_with_splits_from_folders(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for kind in ("cat", "dog"):
        folder.photos("train", name=f"{kind}.{{}}.jpg")
    folder.photos("test", num=3)
    found = scan(folder, label="name")
    assert found.samples.task.names == ("cat", "dog")
    assert len(found.samples) == 12 and set(found.samples.frame["split"]) == {"train"}
    assert [finding.evidence for finding in found.findings if finding.code == "to-predict"] == [{"test": 3}]


def test_photos_to_predict_are_named(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    kaggle(folder)
    found = scan(folder)
    assert set(found.samples.frame["label"]) == {"0", "1", "2"}
    assert [finding.evidence for finding in found.findings if finding.code == "to-predict"] == [{"test_images": 6}]
    assert not any(finding.code == "files-without-row" for finding in found.findings)


def test_a_column_option_names_the_table_in_the_folder(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    table(folder, rows("photo,kind,size", lambda n: f"{n}.jpg,{'ab'[n % 2]},{'xyz'[n % 3]}"))
    with refused("unclear-columns"):
        scan(folder)
    assert scan(folder, label="size").samples.task.names == ("x", "y", "z")


def test_each_combination_a_class_where_that_is_said(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    KINDS[r"several labels in a cell (`a\|b`)"](folder)
    assert scan(folder, multi_label=False).samples.task.names == ("a", "a|b", "a|c", "b", "c")
