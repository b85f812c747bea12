"""Columns that look like groups: told by name and shape, with few false alarms among columns as tables of photos have them."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from errors import refused
from unchoke.core.fingerprint import hash_int
from unchoke.data.groups import diagnose_ungrouped, find_likely_group, find_path_group, path_word, read_path_groups
from unchoke.data.sample_set import LIKELY_GROUP, DataSource
from unchoke.data.scan import scan_samples

NUM = 600
LABELS = [f"c{hash_int('label', row) % 7}" for row in range(NUM)]
Cells = Callable[[int], str]


def of(num: int, prefix: str = "v") -> Cells:
    """Cells with `num` values, in no order."""
    return lambda row: f"{prefix}{hash_int(prefix, num, row) % num}"


def skewed(share: float, num: int) -> Cells:
    """Most cells alike, the rest with `num` values."""
    return lambda row: "most" if hash_int("most", row) % 100 < 100 * share else f"v{row % num}"


GROUPS: dict[str, Cells] = {
    "patient_id": of(200),
    "PatientID": of(80),
    "lesion_id": of(450),
    "subject": of(12),
    "Subject No": of(30),
    "participant": of(25),
    "plot": of(40),
    "Plot_Number": of(24),
    "plot_id": lambda row: str(row // 12),
    "site": of(9),
    "site_name": of(6),
    "farm": of(11),
    "Sampling_Date": lambda row: f"2015/{1 + row % 12}/{1 + row % 28}",
    "date_taken": of(30, "2020-05-"),
    "capture_date": of(28),
    "session": of(20),
    "camera_id": of(15),
    "cameraTrap": of(15),
    "video": of(60),
    "clip_id": of(100),
    "slide_id": of(90),
    "individual_id": of(150),
    "plantid": of(75),
    "group": of(50),
    "group_id": of(50),
    "flight_no": of(8),
    "hospital": of(6),
    "tree": of(120),
    "product_id": of(300),
    "batch": of(10),
}
OTHERS: dict[str, Cells] = {
    "patient_id": lambda row: f"p{row}",
    "lesion_id": lambda row: f"l{row if row > 10 else 0}",
    "case_number": lambda row: str(row),
    "subject_id": lambda row: "only",
    "patient": lambda row: ("yes", "no")[row % 2],
    "patient_age": of(70),
    "patient_sex": of(2),
    "sex": of(2),
    "age": of(80),
    "age_group": of(8),
    "blood_group": of(8),
    "treatment_group": of(6),
    "dx_type": of(4),
    "diagnosis_code": lambda row: LABELS[row] + ".1",
    "case": lambda row: "case of " + LABELS[row],
    "group_name": lambda row: LABELS[row][:1] + str(int(LABELS[row][1:]) // 2),
    "localization": of(15),
    "anatom_site_general": of(8),
    "body_site": of(9),
    "site": of(3),
    "tumor_site": of(12),
    "lesion_size": of(50),
    "lesion_location": of(4),
    "camera": lambda row: "Canon EOS",
    "camera_model": of(12),
    "camera_make": of(6),
    "camera_height": of(9),
    "device_type": of(7),
    "date": lambda row: f"2020-01-01T{row:04d}",
    "date_of_birth": of(80),
    "birth_date": of(80),
    "upload_timestamp": lambda row: str(1_500_000_000 + row),
    "annotation_date": of(12),
    "labelled_session": of(12),
    "last_updated_date": of(12),
    "export_batch": of(6),
    "num_patients": of(9),
    "plot_area": of(40),
    "plant_height": of(40),
    "tree_species": of(9),
    "plant_type": of(9),
    "species": of(12),
    "State": of(8),
    "season": of(4),
    "month": of(12),
    "day_of_week": of(7),
    "weather": of(6),
    "file": lambda row: f"{row}.jpg",
    "md5": lambda row: f"{hash_int(row):x}",
    "width": of(20),
    "NDVI": lambda row: f"0.{row % 50:02d}",
    "site_temperature": lambda row: f"{row % 50}.5",
    "field": lambda row: f"{row % 50}.25",
    "batch_size": of(5),
    "site_id": skewed(0.9, 12),
    "session_length": of(30),
    "quality": of(5),
    "annotator": of(6),
    "license": of(5),
    "url": lambda row: f"http://x/{row}",
}


def found(name: str, cells: Cells) -> str | None:
    import pandas as pd

    table = pd.DataFrame({name: [cells(row) for row in range(NUM)], "label": LABELS}, dtype="str")
    likely = find_likely_group(table, used=("label",), labels=LABELS)
    return None if likely is None else likely.column


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_is_seen(name: str) -> None:
    assert found(name, GROUPS[name]) == name


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_group_is_let_be(name: str) -> None:
    assert found(name, OTHERS[name]) is None


def test_coarsest_of_several_likely_groups() -> None:
    import pandas as pd

    lesions = [f"l{row // 2}" for row in range(NUM)]
    patients, days = [f"p{row // 6}" for row in range(NUM)], [f"d{row // 60}" for row in range(NUM)]
    table = pd.DataFrame({"visit_date": days, "lesion_id": lesions, "patient_id": patients}, dtype="str")
    likely = find_likely_group(table, used=(), labels=LABELS)
    assert likely is not None
    assert (likely.column, likely.num_values) == ("patient_id", 100)
    named = find_likely_group(table, used=("patient_id", "lesion_id"), labels=LABELS)
    assert named is not None
    assert named.column == "visit_date"


def test_ungrouped_finding_and_given_split() -> None:
    import pandas as pd

    table = pd.DataFrame({"patient no": [f"p{row // 6}" for row in range(NUM)]}, dtype="str")
    likely = find_likely_group(table, used=(), labels=LABELS)
    assert likely is not None
    (finding,) = diagnose_ungrouped(likely, None)
    assert finding.severity == "warning"
    assert "--group 'patient no'" in finding.message
    assert "--group none" in finding.fix
    whole = ["train" if row < 300 else "test" for row in range(NUM)]
    assert diagnose_ungrouped(likely, whole) == []
    (torn,) = diagnose_ungrouped(likely, ["train", "test"] * 300)
    assert torn.evidence["torn"] == 100


MakeFiles = Callable[[Sequence[str]], Path]
NUM_PATHS = 240
PATH_LABELS = ["ab"[row % 2] for row in range(NUM_PATHS)]


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("IMG_plot{group}_{row}.jpg", "path:plot"),
        ("patient{group:05d}/study1/view{row}_frontal.jpg", "path:patient"),
        ("Patient-{group} ({row}).png", "path:patient"),
        ("session_{group}/{row}.jpg", "path:session"),
        ("site 3/tree_{group}_{row}.jpg", "path:tree"),
        ("session_{group}_plant{group}_{row}.jpg", "path:plant"),
    ],
)
def test_a_word_with_a_number_that_repeats_is_seen(name: str, column: str) -> None:
    likely = find_path_group([name.format(group=row // 8, row=row) for row in range(NUM_PATHS)], PATH_LABELS)
    assert likely is not None
    assert (likely.column, likely.num_values) == (column, 30)


@pytest.mark.parametrize(
    "name",
    [
        "IMG_{row}.jpg",
        "plot{row}.jpg",
        "implant{group}_{row}.jpg",
        "plots_{group}.jpg",
        "plot_{row}_of_{group}.jpg",
        "0a1b-{row}___RS_GLSp {group}.JPG",
        "camera2_{row}.jpg",
        "scene1/{row}.jpg",
        "group{group}_{row}.jpg",
        "2020-05-{group}_{row}.jpg",
    ],
)
def test_other_names_are_let_be(name: str) -> None:
    assert find_path_group([name.format(group=row // 8, row=row) for row in range(NUM_PATHS)], PATH_LABELS) is None


def test_rare_or_class_bound_word_is_no_group() -> None:
    half = [f"plot{row // 8}_{row}.jpg" if row % 2 else f"{row}.jpg" for row in range(NUM_PATHS)]
    assert find_path_group(half, PATH_LABELS) is None
    classes = [f"c{row % 10}" for row in range(NUM_PATHS)]
    assert find_path_group([f"plot{row % 10}_{row}.jpg" for row in range(NUM_PATHS)], classes) is None


def test_path_groups_read_unknown_word_refused() -> None:
    paths = ["a/Plot_007_1.jpg", "b/plot7-2.jpg", "b/plot 12.jpg", "b/none.jpg"]
    assert read_path_groups(paths, "plot") == ["plot7", "plot7", "plot12", ""]
    with refused("no-path-groups", "'farm'"):
        read_path_groups(paths, "farm")
    assert (path_word("path:Plot"), path_word("plot"), path_word(None)) == ("plot", None, None)


def test_class_folders_grouped_by_path_word(make_files: MakeFiles) -> None:
    root = make_files([f"{'sick' if row % 2 else 'well'}/plant{row // 4}_{row}.jpg" for row in range(40)])
    scan = scan_samples(DataSource(root))
    (said,) = [finding for finding in scan.findings if finding.code == "ungrouped"]
    assert "--group path:plant" in said.message
    assert scan.samples.frame[LIKELY_GROUP].nunique() == 10
    grouped = scan_samples(DataSource(root, group="path:plant"))
    assert "ungrouped" not in {finding.code for finding in grouped.findings}
    assert grouped.samples.frame["group"].nunique() == 10
    assert grouped.samples.group_name == "path:plant"
    assert "ungrouped" not in {finding.code for finding in scan_samples(DataSource(root, suspects=False)).findings}
    with refused("columns-without-table", "--group", str(root)):
        scan_samples(DataSource(root, group="plant"))


def test_table_grouped_by_paths_of_files(make_files: MakeFiles) -> None:
    names = [f"patient{row // 4}/view{row}.jpg" for row in range(40)]
    root = make_files(names)
    with (root / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("path", "label"), *((name, "ab"[row % 2]) for row, name in enumerate(names))])
    scan = scan_samples(DataSource(root / "t.csv"))
    assert [finding.evidence["column"] for finding in scan.findings if finding.code == "ungrouped"] == ["path:patient"]
    grouped = scan_samples(DataSource(root / "t.csv", group="path:patient"))
    assert grouped.samples.frame["group"].nunique() == 10
