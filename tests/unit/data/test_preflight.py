from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

import pytest

from errors import refused
from unchoke.core.errors import MachineError
from unchoke.core.findings import Finding
from unchoke.core.listing import FileEntry
from unchoke.data.preflight import FileFacts, ImageExpectation, diagnose_files, parse_expect, too_many_failed
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
