"""What was planted is found: flipped labels, copies, copied folders, odd photos, odd values; with ids that stay."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np

from unchoke.curation.data_finding import DataFinding, queue_of, settle_findings
from unchoke.curation.diagnose_data import CurationMaterial, diagnose_data
from unchoke.curation.measure_photos import MeasureTable
from unchoke.curation.photo_measures import NUMBERS

NUM, DIM = 240, 32
NAMES = ("ant", "bee", "cat")
_USUAL = {
    "light_low": 20,
    "light_mid": 120,
    "light_high": 240,
    "contrast": 60,
    "commonest_share": 0.05,
    "entropy": 7,
    "sharpness": 0.5,
}


def material(**changed: Any) -> CurationMaterial:
    """Three classes that features tell apart, each photo with a look of its own."""
    random = np.random.default_rng(0)
    targets = np.arange(NUM) % 3
    feats = (4 * random.normal(size=(3, DIM))[targets] + random.normal(size=(NUM, DIM))).astype(np.float16)
    table = MeasureTable.empty(NUM)
    table.numbers[:] = [_USUAL[name] for name in NUMBERS]
    table.numbers[:, NUMBERS.index("sharpness")] += random.normal(size=NUM) / 50
    table.looks[:] = random.integers(0, 256, table.looks.shape)
    table.known[:] = True
    ids = [f"{NAMES[target]}/{row:03d}.jpg" for row, target in enumerate(targets.tolist())]
    plain = CurationMaterial(
        kind="classification",
        names=NAMES,
        ids=ids,
        paths=ids,
        targets=targets,
        feats_nd=feats,
        measures=table,
        sizes=np.full((NUM, 2), 300),
        sides=["train"] * NUM,
        groups=[""] * NUM,
        folders=[one.partition("/")[0] for one in ids],
        contents=[f"content {row}" for row in range(NUM)],
    )
    return replace(plain, **changed)


def of_kind(found: list[DataFinding], kind: str) -> list[DataFinding]:
    return [one for one in found if one.kind == kind]


def test_sound_data_has_nothing_to_decide() -> None:
    assert [one.message for one in diagnose_data(material()).findings] == []


def test_flipped_labels_come_first_with_the_label_they_had() -> None:
    targets = material().targets.copy()
    flipped = [5, 50, 111, 200]
    targets[flipped] = (targets[flipped] + 1) % 3
    found = diagnose_data(material(targets=targets))
    first = found.findings[: len(flipped)]
    assert {one.photos[0] for one in first} == {material().ids[row] for row in flipped}
    assert all(one.suggested[0].value == one.photos[0].partition("/")[0] for one in first), "the folder was its class"
    assert found.num_wrong is not None
    assert 0 < found.num_wrong <= len(flipped), "confident learning counts those it is sure of"


def copied(plain: CurationMaterial, pairs: list[tuple[int, int]]) -> CurationMaterial:
    """The second of each pair shows what the first does."""
    for original, copy in pairs:
        plain.feats_nd[copy], plain.measures.looks[copy] = plain.feats_nd[original], plain.measures.looks[original]
    return plain


def test_copies_are_told_by_what_they_spoil() -> None:
    sides = ["train"] * NUM
    sides[6] = "test"
    found = diagnose_data(copied(material(sides=sides), [(0, 3), (1, 2), (9, 6)])).findings
    assert [set(one.photos) for one in of_kind(found, "copies")] == [{"ant/000.jpg", "ant/003.jpg"}]
    assert [set(one.photos) for one in of_kind(found, "copies-labels")] == [{"bee/001.jpg", "cat/002.jpg"}]
    torn = of_kind(found, "copies-torn")
    assert [set(one.photos) for one in torn] == [{"ant/006.jpg", "ant/009.jpg"}]
    assert torn[0].suggested[0].what == "group"


def test_a_copied_folder_is_one_finding() -> None:
    folders = [
        "old" if row % 3 == 0 and row < 60 else "new" if row % 3 == 0 and row < 120 else f"rest {row}" for row in range(NUM)
    ]
    old, new = ([row for row in range(NUM) if folders[row] == name] for name in ("old", "new"))
    found = diagnose_data(copied(material(folders=folders), list(zip(old, new, strict=True)))).findings
    (copy,) = of_kind(found, "folder-copy")
    assert all(part in copy.message for part in ("'old'", "'new'", "20 of 20"))
    assert not of_kind(found, "copies"), "what the folder explains is not told again"


def test_odd_photos_are_told_apart() -> None:
    plain = material(sizes=np.array([[300, 300]] * (NUM - 2) + [[20, 20], [1200, 200]]))
    column = {name: plain.measures.numbers[:, place] for place, name in enumerate(NUMBERS)}
    column["commonest_share"][0] = 1.0
    column["light_high"][1] = 12
    column["sharpness"][2] = 0.02
    found = diagnose_data(plain).findings
    assert {one.kind: one.photos[0] for one in found} == {
        "blank": plain.ids[0],
        "dark": plain.ids[1],
        "blurred": plain.ids[2],
        "tiny": plain.ids[NUM - 2],
        "shape": plain.ids[NUM - 1],
    }
    json.dumps([one.to_dict() for one in found])


def test_photos_of_one_minute_on_two_sides_are_a_session() -> None:
    plain = material(sides=["train", "test", *["train"] * (NUM - 2)])
    plain.measures.taken_s[:3] = [1000, 1030, 5000]
    plain.measures.cameras[:3] = "camera"
    found = of_kind(diagnose_data(plain).findings, "session")
    assert [one.photos for one in found] == [tuple(plain.ids[:2])]
    assert found[0].suggested[0].value == plain.ids[0]


def test_classes_that_nobody_can_tell_apart_are_named() -> None:
    random = np.random.default_rng(1)
    feats = material().feats_nd.copy()
    twins = np.flatnonzero(material().targets != 2)
    feats[twins] = random.normal(size=(len(twins), DIM)).astype(np.float16)
    found = of_kind(diagnose_data(material(feats_nd=feats)).findings, "classes")
    assert [one.about for one in found] == [("ant", "bee")]


def test_a_gross_value_hides_no_other_and_blames_nobody() -> None:
    plain = material()
    values = (plain.targets * 10 + np.random.default_rng(2).normal(size=NUM)).astype(np.float32)[:, None]
    values[7], values[40] = 99_999, values[40] + 15
    found = diagnose_data(replace(plain, kind="regression", names=("weight",), targets=values)).findings
    assert [one.photos[0] for one in of_kind(found, "value")][:2] == [plain.ids[7], plain.ids[40]]
    assert all(one.evidence["likely"] < 40 for one in of_kind(found, "value"))


def test_what_could_not_be_judged_is_said() -> None:
    plain = material()
    few = replace(
        plain,
        names=("ant",),
        targets=np.zeros(NUM, np.int64),
        ids=[f"ant/{row}.jpg" for row in range(NUM)],
    )
    assert diagnose_data(few).unjudged
    assert not diagnose_data(plain).unjudged
    lone = plain.targets.copy()
    lone[5] = 3
    told = diagnose_data(replace(plain, names=(*NAMES, "dog"), targets=lone))
    assert "1 class" in told.unjudged
    assert plain.ids[5] not in {one.photos[0] for one in of_kind(told.findings, "label")}


def test_a_value_unlike_its_neighbours_is_found() -> None:
    plain = material()
    values = (plain.targets * 10 + np.random.default_rng(2).normal(size=NUM)).astype(np.float32)[:, None]
    values[7] += 15
    found = diagnose_data(replace(plain, kind="regression", names=("weight",), targets=values)).findings
    assert found[0].kind == "value"
    assert found[0].photos == (plain.ids[7],)
    assert found[0].evidence["target"] == "weight"


def test_ids_stay_and_decided_findings_leave_the_queue() -> None:
    targets = material().targets.copy()
    targets[5] = (targets[5] + 1) % 3
    found, again = (diagnose_data(material(targets=targets)).findings for _ in range(2))
    assert [one.id for one in found] == [one.id for one in again]
    assert DataFinding.from_dict(found[0].to_dict()) == found[0]
    assert queue_of(found) == [found[0].id]
    assert queue_of(settle_findings(found, {material().ids[5]})) == []
