from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from errors import refused
from unchoke.data.sample_set import DataSource, Scan
from unchoke.data.scan import scan_samples

MakeFiles = Callable[[list[str]], Path]
AWKWARD = [
    "a b.jpg",
    "[1](2).jpg",
    "a,b.jpg",
    'say "x".jpg',
    "it's.jpg",
    "two\nlines.jpg",
    "naïve 猫.jpg",
    "-rf.jpg",
    "back\\slash.jpg",
]


def codes(scan: Scan) -> dict[str, str]:
    return {finding.code: finding.severity for finding in scan.findings}


def test_classes_are_folders_ids_relative_paths(make_files: MakeFiles) -> None:
    root = make_files(["cat/1.jpg", "cat/deep/er/2.PNG", "dog/1.webp"])
    samples = scan_samples(DataSource(root)).samples
    assert samples.task.kind == "classification"
    assert samples.task.names == ("cat", "dog")
    assert samples.frame["sample_id"].tolist() == ["cat/1.jpg", "cat/deep/er/2.PNG", "dog/1.webp"]
    assert samples.frame["label"].tolist() == ["cat", "cat", "dog"]
    assert samples.frame["path"].tolist() == [str(root / name) for name in samples.frame["sample_id"]]
    assert samples.frame["size_bytes"].tolist() == [(root / name).stat().st_size for name in samples.frame["sample_id"]]
    assert set(samples.frame["split"]) == {""}


def test_awkward_names_are_kept_as_they_are(make_files: MakeFiles) -> None:
    names = [f"{folder}/{name}" for folder in ("Corn_(maize)___x y_", "-dash, 'q'") for name in AWKWARD]
    samples = scan_samples(DataSource(make_files(names))).samples
    assert sorted(samples.frame["sample_id"]) == sorted(names)


def test_folders_called_after_splits_are_explicit_splits(make_files: MakeFiles) -> None:
    root = make_files(["train/a/1.jpg", "train/b/2.jpg", "Valid/a/3.jpg", "test/b/4.jpg"])
    frame = scan_samples(DataSource(root)).samples.frame
    assert dict(zip(frame["sample_id"], frame["split"], strict=True)) == {
        "train/a/1.jpg": "train",
        "train/b/2.jpg": "train",
        "Valid/a/3.jpg": "val",
        "test/b/4.jpg": "test",
    }
    assert set(frame["label"]) == {"a", "b"}


def test_classes_called_train_and_test(make_files: MakeFiles) -> None:
    samples = scan_samples(DataSource(make_files(["train/1.jpg", "test/2.jpg", "plane/3.jpg"]))).samples
    assert samples.task.names == ("plane", "test", "train")


def test_an_unlabelled_test_folder_is_named_and_not_used(make_files: MakeFiles) -> None:
    scan = scan_samples(DataSource(make_files(["train/a/1.jpg", "train/b/2.jpg", "test/3.jpg"])))
    assert scan.samples.task.names == ("a", "b")
    finding = next(finding for finding in scan.findings if finding.code == "files-without-class")
    assert [Path(path).name for path in finding.paths] == ["3.jpg"]


def test_flat_folder_refused_table_suggested(make_files: MakeFiles) -> None:
    root = make_files(["1.jpg", "2.jpg", "labels.csv"])
    with refused("no-class-folders", " 2 ", f"unchoke check {root}/labels.csv --images {root}"):
        scan_samples(DataSource(root))


def test_a_folder_without_images_is_refused(make_files: MakeFiles) -> None:
    with refused("no-images", "2 ", "1 "):
        scan_samples(DataSource(make_files(["cat/readme.txt", "cat/photo.dng"])))


def test_columns_refused_for_folders(make_files: MakeFiles) -> None:
    root = make_files(["a/1.jpg", "b/1.jpg"])
    for options, told in (({"group": "plant"}, True), ({"label": "kind"}, False)):
        with refused("columns-without-table", str(root)) as caught:
            scan_samples(DataSource(root, **options))
        assert ("--group path:WORD" in caught.value.try_) == told


def test_every_oddity_of_a_tree_is_listed_at_once(make_files: MakeFiles) -> None:
    root = make_files(["a/1.jpg", "a/2.dng", "b/1.jpg", "loose.png", "meta.csv", "a/notes.txt"])
    (root / "empty").mkdir()
    found = codes(scan_samples(DataSource(root)))
    assert found == {
        "unsupported-files": "warning",
        "other-files": "info",
        "files-without-class": "warning",
        "empty-class": "warning",
        "table-beside-folders": "warning",
        "few-samples": "warning",
        "single-image-class": "warning",
    }


def test_one_class_is_an_error_and_imbalance_a_warning(make_files: MakeFiles) -> None:
    only = codes(scan_samples(DataSource(make_files([f"a/{i}.jpg" for i in range(20)]))))
    assert only["one-class"] == "error"
    scan = scan_samples(DataSource(make_files(["b/1.jpg", "b/2.jpg"])))
    finding = next(finding for finding in scan.findings if finding.code == "class-imbalance")
    assert finding.evidence == {"ratio": 10.0, "classes": {"a": 20, "b": 2}}


def test_a_link_back_to_the_root_does_not_loop(make_files: MakeFiles) -> None:
    root = make_files(["a/1.jpg", "b/2.jpg"])
    (root / "a" / "loop").symlink_to(root, target_is_directory=True)
    assert len(scan_samples(DataSource(root)).samples) == 2


def test_a_workspace_inside_the_data_is_not_data(make_files: MakeFiles) -> None:
    root = make_files(["a/1.jpg", "b/2.jpg", "unchoke-out/unchoke.toml", "unchoke-out/patches/3.jpg"])
    scan = scan_samples(DataSource(root))
    assert scan.samples.task.names == ("a", "b")
    assert "empty-class" not in codes(scan)


@pytest.mark.skipif(os.name == "nt" or os.uname().sysname == "Darwin", reason="these systems only have Unicode names")
def test_a_name_that_is_not_unicode_is_an_error_not_a_crash(make_files: MakeFiles) -> None:
    root = make_files(["a/1.jpg", "b/2.jpg"])
    with open(os.fsencode(root / "a") + b"/caf\xe9.jpg", "wb") as file:  # noqa: PTH123 (a name in bytes)
        file.write(b"x")
    scan = scan_samples(DataSource(root))
    assert len(scan.samples) == 2
    assert codes(scan)["undecodable-name"] == "error"
    few = scan_samples(DataSource(root, failure_rate=0.4))
    assert (len(few.samples), codes(few)["undecodable-name"]) == (2, "warning")


@pytest.mark.skipif(os.name == "nt" or os.uname().sysname == "Darwin", reason="these systems only have Unicode names")
def test_all_names_not_unicode_refused(make_files: MakeFiles) -> None:
    root = make_files(["notes.txt"])
    for name in (b"/caf\xe9.jpg", b"/th\xe9.PNG"):
        with open(os.fsencode(root) + name, "wb") as file:  # noqa: PTH123 (a name in bytes)
            file.write(b"x")
    with refused("name-not-utf8", "2 ", r"caf\udce9.jpg"):
        scan_samples(DataSource(root))


def test_strictly_a_picture_outside_every_class_is_an_error(make_files: MakeFiles) -> None:
    root = make_files(["a/1.jpg", "b/2.jpg", "stray.jpg"])
    assert codes(scan_samples(DataSource(root)))["files-without-class"] == "warning"
    assert codes(scan_samples(DataSource(root, strict=True)))["files-without-class"] == "error"


def test_excluded_pictures_are_no_samples_and_are_counted(make_files: MakeFiles) -> None:
    root = make_files(["a/1.jpg", "a/1_mask.png", "b/2.jpg", "b/2_mask.png", "old/3.jpg"])
    scan = scan_samples(DataSource(root, exclude=("*_mask.png", "old", "*.nef")))
    assert scan.samples.frame["sample_id"].tolist() == ["a/1.jpg", "b/2.jpg"]
    assert scan.samples.task.names == ("a", "b")
    choice = scan.choices[0]
    assert (choice.name, choice.evidence) == ("exclude", {"*_mask.png": 2, "old": 1, "*.nef": 0})
    assert "3 of 5" in choice.reason
    assert codes(scan)["exclude-unused"] == "warning"


def test_the_word_none_excludes_nothing(make_files: MakeFiles) -> None:
    scan = scan_samples(DataSource(make_files(["a/1.jpg", "b/2.jpg", "none/3.jpg"]), exclude=("none",)))
    assert len(scan.samples) == 3
    assert "exclude" not in {choice.name for choice in scan.choices}
    assert "exclude-unused" not in codes(scan)


def test_excluding_everything_is_refused(make_files: MakeFiles) -> None:
    with refused("everything-excluded", "2 ", "'*.jpg'"):
        scan_samples(DataSource(make_files(["a/1.jpg", "b/2.jpg"]), exclude=("*.jpg",)))


def test_columns_make_no_sense_for_a_folder(make_files: MakeFiles) -> None:
    with refused("columns-without-table", "--label, --group"):
        scan_samples(DataSource(make_files(["a/1.jpg"]), label="dx", group="g"))


def test_a_misspelt_path_is_answered_with_the_nearest_one(make_files: MakeFiles) -> None:
    root = make_files(["a/1.jpg"])
    with refused("no-such-file", str(root.with_name("dato")), f"unchoke check {root}"):
        scan_samples(DataSource(root.with_name("dato")))
