from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from errors import refused
from unchoke.core.errors import MachineError
from unchoke.core.findings import Finding
from unchoke.core.listing import FileEntry
from unchoke.data.file_findings import (
    FileFacts,
    ImageExpectation,
    Room,
    can_be_left_out,
    diagnose_copies,
    diagnose_files,
    diagnose_room,
    estimate_need,
    find_unscored,
    keep_one_copy,
    measure_room,
    parse_expect,
    too_many_failed,
)
from unchoke.data.sample_set import Samples, TaskSpec, build_samples


def make(labels: Sequence[str], *, groups: Sequence[str] | None = None, splits: Sequence[str] | None = None) -> Samples:
    names = [f"{i:04d}.jpg" for i in range(len(labels))]
    entries = [FileEntry(f"/d/{name}", name, 1, 1) for name in names]
    return build_samples(
        TaskSpec("classification", tuple(sorted(set(labels)))),
        entries,
        sample_ids=names,
        values={"label": labels},
        groups=groups,
        splits=splits,
        group_name="lesion_id" if groups else "",
    )


def sound(samples: Samples) -> list[FileFacts]:
    return [FileFacts(path, 9, 1, f"digest of {path}", 600, 450, "RGB", "JPEG") for path in samples.frame["path"]]


def by_code(findings: list[Finding]) -> dict[str, Finding]:
    assert len({finding.code for finding in findings}) == len(findings)
    return {finding.code: finding for finding in findings}


def test_sound_files_leave_only_the_histogram() -> None:
    samples = make(["a", "b"] * 10)
    facts = sound(samples)
    facts[0] = replace(facts[0], width=20, mode="L")
    findings = diagnose_files(samples, facts, expect=None)
    assert [(finding.code, finding.severity) for finding in findings] == [("sizes", "info")]
    assert list(findings[0].evidence.items()) == [("600x450 RGB", 19), ("20x450 L", 1)]


def test_the_histogram_shows_the_ten_most_frequent() -> None:
    samples = make(["a"] * 30)
    facts = [replace(fact, width=max(1, i - 10)) for i, fact in enumerate(sound(samples))]
    evidence = diagnose_files(samples, facts)[-1].evidence
    assert len(evidence) == 10
    assert next(iter(evidence.items())) == ("1x450 RGB", 12)


@pytest.mark.parametrize("problem", ["unreadable", "truncated", "empty", "bomb-sized"])
def test_few_failures_warn_and_many_stop(problem: str) -> None:
    samples = make(["a", "b"] * 20)
    for count, severity in ((2, "warning"), (3, "error")):
        facts = [replace(fact, problem=problem, detail="why") if i < count else fact for i, fact in enumerate(sound(samples))]
        finding = by_code(diagnose_files(samples, facts))[problem]
        assert finding.severity == severity
        assert finding.paths == tuple(samples.frame["path"][:count])
        assert finding.evidence["first"] == "why"


def test_the_share_of_failures_counts_all_kinds_together() -> None:
    samples = make(["a", "b"] * 20)
    facts = sound(samples)
    for row, problem in enumerate(["empty", "truncated", "unreadable"]):
        facts[row] = replace(facts[row], problem=problem)
    found = by_code(diagnose_files(samples, facts))
    assert {found[code].severity for code in ("empty", "truncated", "unreadable")} == {"error"}
    assert {by_code(diagnose_files(samples, facts, failure_rate=0.1))[code].severity for code in ("empty", "truncated")} == {
        "warning"
    }


def test_wrong_extension_warns_only() -> None:
    samples = make(["a", "b"])
    facts = [replace(fact, problem="wrong-extension", format="PNG") for fact in sound(samples)]
    found = by_code(diagnose_files(samples, facts))
    assert found["wrong-extension"].severity == "warning"
    assert found["wrong-extension"].evidence == {"count": 2, "really": {"PNG": 2}}
    assert found["sizes"].evidence == {"600x450 RGB": 2}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("600x450 rgb", ImageExpectation(600, 450, "RGB")),
        ("600X450", ImageExpectation(600, 450)),
        ("grey", ImageExpectation(mode="L")),
        ("RGB, 8×9", ImageExpectation(8, 9, "RGB")),
    ],
)
def test_an_expectation_is_a_size_a_mode_or_both(text: str, expected: ImageExpectation) -> None:
    assert parse_expect(text) == expected


@pytest.mark.parametrize("text", ["", "600", "0x5", "600x450 purple"])
def test_other_expectations_are_refused(text: str) -> None:
    with refused("bad-expectation", text.rpartition(" ")[2]) as caught:
        parse_expect(text)
    parse_expect(caught.value.try_.removeprefix("--expect ").strip("'"))


def test_what_differs_from_the_expectation_is_an_error() -> None:
    samples = make(["a", "b", "a"])
    facts = sound(samples)
    facts[0] = replace(facts[0], width=450, height=600)
    facts[1] = replace(facts[1], mode="CMYK")
    facts[2] = replace(facts[2], problem="empty", width=0, height=0, mode="")
    found = by_code(diagnose_files(samples, facts, expect=parse_expect("600x450 rgb")))
    assert (found["unexpected-size"].severity, found["unexpected-size"].evidence["found"]) == ("error", {"450x600": 1})
    assert (found["unexpected-mode"].severity, found["unexpected-mode"].evidence["found"]) == ("error", {"CMYK": 1})


def test_the_same_bytes_are_told_apart_by_label_and_split() -> None:
    samples = make(["a", "b", "a", "a", "b", "b", "b"], splits=["train", "train", "train", "test", "val", "val", "test"])
    contents = ["1", "1", "2", "2", "3", "3", ""]
    facts = [replace(fact, content=content) for fact, content in zip(sound(samples), contents, strict=True)]
    found = by_code(diagnose_files(samples, facts))
    names = {code: [path.rpartition("/")[2] for path in finding.paths] for code, finding in found.items()}
    assert names["duplicate-label-conflict"] == ["0000.jpg", "0001.jpg"]
    assert names["duplicate-across-splits"] == ["0002.jpg", "0003.jpg"]
    assert names["duplicate-images"] == ["0004.jpg", "0005.jpg"]
    assert [found[code].severity for code in names if code.startswith("dup")] == ["error", "error", "info"]
    assert found["duplicate-label-conflict"].evidence["differ"] == [["a", "b"]]


def test_a_group_on_several_sides_is_an_error() -> None:
    samples = make(["a", "b", "a", "b"], groups=["g", "g", "h", ""], splits=["train", "test", "train", "test"])
    finding = by_code(diagnose_files(samples, sound(samples)))["group-leakage"]
    assert finding.severity == "error"
    assert finding.evidence == {"groups": 1, "of": 2, "sides": {"g": ["test", "train"]}}
    assert "lesion_id" in finding.message


def test_group_across_own_folds_is_error() -> None:
    samples = make(["a", "b", "a", "b"], groups=["g", "g", "h", ""], splits=["train", "train", "val", "test"])
    samples = replace(samples.with_columns(fold=[2, 3, 1, 0]), fold_name="farm")
    finding = by_code(diagnose_files(samples, sound(samples)))["group-leakage"]
    assert "'farm'" in finding.message
    assert "--fold-column" in finding.fix


def test_regression_duplicates_with_other_target() -> None:
    entries = [FileEntry(f"/d/{i}", str(i), 1, 1) for i in range(2)]
    samples = build_samples(TaskSpec("regression", ("x", "y")), entries, sample_ids=["0", "1"], values={"x": [1, 1], "y": [2, 3]})
    facts = [FileFacts(f"/d/{i}", 1, 1, "same", 1, 1, "L") for i in range(2)]
    assert "duplicate-label-conflict" in by_code(diagnose_files(samples, facts))


def test_facts_may_come_as_columns() -> None:
    import pandas as pd

    samples = make(["a", "b"] * 5)
    facts = sound(samples)
    columns = pd.DataFrame([asdict(fact) for fact in facts], index=range(5, 15))
    assert diagnose_files(samples, columns) == diagnose_files(samples, facts)


def test_facts_must_be_as_many_as_samples() -> None:
    samples = make(["a", "b"])
    with pytest.raises(ValueError, match="1 facts for 2 samples"):
        diagnose_files(samples, sound(samples)[:1])


def test_too_many_failures_suggest_a_share() -> None:
    failed = {f"{number}.jpg": "truncated: it ends early" for number in range(15)}
    assert too_many_failed(failed, 100, 0.15) is None
    error = too_many_failed(failed, 100, 0.1)
    assert error is not None and error.code == "too-many-failed" and error.try_.endswith("--max-failures 0.2")
    error = too_many_failed(failed, 60, 0.2)
    assert error is not None and error.try_.endswith("--max-failures 0.5")
    error = too_many_failed(failed, 20, 0.6)
    assert error is not None and "--max-failures" not in error.try_


def test_unreachable_store_not_blamed_on_photos() -> None:
    failed = {f"{number}.jpg": "unreachable: HTTP status 503" for number in range(15)} | {"torn.jpg": "truncated: it ends early"}
    error = too_many_failed(failed, 100, 0.05)
    assert isinstance(error, MachineError) and error.code == "too-many-failed"


def copies_of(names: Sequence[str], labels: Sequence[str], splits: Sequence[str]) -> Samples:
    entries = [FileEntry(f"/d/{name}", name, 1, 1) for name in names]
    task = TaskSpec("classification", tuple(sorted(set(labels))))
    return build_samples(task, entries, sample_ids=names, values={"label": labels}, splits=splits)


def numbered(splits: Sequence[str], labels: Sequence[str] | None = None) -> Samples:
    return copies_of([f"{row:03d}.jpg" for row in range(len(splits))], labels or ["a"] * len(splits), splits)


def test_copy_not_scored_on_later_side() -> None:
    samples = numbered(["train", "val", "test", "val", "test", "test", "test"])
    unscored = find_unscored(samples, ["1", "1", "1", "2", "2", "3", "3"])
    assert [(one.sample_id, one.split) for one in unscored] == [("001.jpg", "val"), ("002.jpg", "test"), ("004.jpg", "test")]
    assert "'000.jpg'" in unscored[0].reason and "train" in unscored[0].reason
    assert "'003.jpg'" in unscored[2].reason and "val" in unscored[2].reason


def test_copies_with_other_labels_train_but_are_not_scored() -> None:
    samples = numbered(["train", "train", "test", "test"], ["a", "b", "a", "b"])
    unscored = find_unscored(samples, ["1", "1", "2", "2"])
    assert [(one.sample_id, one.code) for one in unscored] == [
        ("002.jpg", "duplicate-label-conflict"),
        ("003.jpg", "duplicate-label-conflict"),
    ]


def test_pictures_that_were_not_read_are_copies_of_none() -> None:
    assert find_unscored(numbered(["train", "test"]), ["", ""]) == []


def test_few_copies_can_be_left_out() -> None:
    contents = ["same", "same", *map(str, range(38))]
    samples = numbered(["train", "test", *["train"] * 38])
    for rate, enough in ((0.05, True), (0, False)):
        (finding,) = diagnose_copies(samples, contents, failure_rate=rate)
        assert (finding.code, finding.severity, can_be_left_out(finding)) == ("duplicate-across-splits", "error", enough)
        assert "1 file" in finding.message and "2.5%" in finding.message
    (finding,) = diagnose_copies(numbered(["test", "test", *["train"] * 38]), contents, failure_rate=0.05)
    assert (finding.code, finding.severity) == ("duplicate-images", "info")


def test_copied_folders_named_once() -> None:
    names = [f"{folder}/{row}.jpg" for folder in ("a", "b", "c") for row in range(5)]
    samples = copies_of([*names, "c/extra.jpg"], ["x"] * 16, ["train"] * 16)
    contents = [*(str(row) for _ in range(3) for row in range(5)), "other"]
    (finding,) = diagnose_copies(samples, contents, failure_rate=0.05)
    assert "folder 'a' = 'b' = 'c', 5 of 6" in finding.message
    assert ".jpg" not in finding.message


def test_copies_here_and_there_are_named_by_file() -> None:
    samples = copies_of(["a/1.jpg", "a/2.jpg", "a/3.jpg", "b/1.jpg"], ["x"] * 4, ["train"] * 4)
    (finding,) = diagnose_copies(samples, ["1", "2", "2", "1"], failure_rate=0.05)
    assert "'a/1.jpg' = 'b/1.jpg'" in finding.message
    assert "'a/2.jpg' = 'a/3.jpg'" in finding.message


def test_of_copies_with_one_label_the_first_stays() -> None:
    samples = numbered([""] * 5, ["a", "a", "a", "b", "a"])
    assert keep_one_copy(samples, ["1", "1", "2", "2", ""]) == [True, False, True, True, True]


def test_first_side_keeps_its_copy() -> None:
    import pandas as pd

    assert keep_one_copy(numbered(["test", "val", "train"]), ["1", "1", "1"]) == [False, False, True]
    previous = pd.DataFrame({"sample_id": ["001.jpg"], "split": ["train"]})
    assert keep_one_copy(numbered(["", "", ""]), ["1", "1", "1"], previous) == [False, True, False]


PLENTY = Room(disk_bytes=10**12, memory_bytes=10**11, descriptors=1024)
NEED = Room(disk_bytes=10**9, memory_bytes=10**9, descriptors=48)


def test_plenty_of_room_needs_no_words(tmp_path: Path) -> None:
    assert not list(diagnose_room(PLENTY, NEED, tmp_path))


def test_small_disk_is_error_rest_warnings(tmp_path: Path) -> None:
    found = list(diagnose_room(Room(disk_bytes=10**8, memory_bytes=10**8, descriptors=20), NEED, tmp_path))
    assert [(finding.code, finding.severity) for finding in found] == [
        ("disk-too-small", "error"),
        ("memory-tight", "warning"),
        ("descriptors-few", "warning"),
    ]
    assert found[0].evidence == {"need_bytes": 10**9, "free_bytes": 10**8}
    assert "1.0 GB" in found[0].message
    assert "100.0 MB" in found[0].message
    assert found[2].command.startswith("ulimit -n ")


def test_disk_need_grows_with_samples_and_views() -> None:
    small, large, viewed = (
        estimate_need(num, num_views=views, default_encoder=True) for num, views in ((1000, 1), (50_000, 1), (1000, 4))
    )
    assert large.disk_bytes - small.disk_bytes >= 49_000 * 2224 * 2
    assert viewed.disk_bytes - small.disk_bytes == 3 * 1000 * 2224 * 2
    assert 0 < large.memory_bytes - small.memory_bytes < 100_000_000
    other = estimate_need(1000, num_views=1, default_encoder=False)
    assert other.disk_bytes > small.disk_bytes


def test_room_measured_before_folder_exists(tmp_path: Path) -> None:
    room = measure_room(tmp_path / "not" / "yet")
    assert room.disk_bytes > 0
    assert room.memory_bytes > 0
    assert room.descriptors > 0
    assert not (tmp_path / "not").exists()
