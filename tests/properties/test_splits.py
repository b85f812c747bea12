"""What must hold of every division, whatever the data: order is irrelevant, history is kept, what belongs together stays so."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from unchoke.core.listing import FileEntry
from unchoke.data.sample_set import Samples, TaskSpec, build_samples
from unchoke.data.splits import assign_splits


@dataclass(frozen=True)
class Row:
    name: str
    label: str
    group: str
    content: str


ROWS = st.lists(
    st.builds(
        Row,
        st.text("abcdefgh", min_size=1, max_size=4),
        st.sampled_from(["cat", "dog", "owl"]),
        st.sampled_from(["", "", "g1", "g2", "g3", "g4"]),
        st.sampled_from(["", "", "c1", "c2"]),
    ),
    min_size=1,
    max_size=60,
    unique_by=lambda row: row.name,
)
SETTINGS = settings(max_examples=60, deadline=None)


def samples_of(rows: list[Row], *, grouped: bool = True) -> tuple[Samples, list[str]]:
    """The samples in the given order, with their contents alongside."""
    entries = [FileEntry(f"/d/{row.name}", row.name, 1, 1) for row in rows]
    built = build_samples(
        TaskSpec("classification", tuple(sorted({row.label for row in rows}))),
        entries,
        sample_ids=[row.name for row in rows],
        values={"label": [row.label for row in rows]},
        groups=[row.group if grouped else "" for row in rows],
    )
    ordered = built.frame.set_index("sample_id").loc[[row.name for row in rows]].reset_index()
    return Samples(built.task, ordered), [row.content for row in rows]


def sides(rows: list[Row], **options: object) -> dict[str, str]:
    samples, content = samples_of(rows)
    frame = assign_splits(samples, content=content, **options)[0].frame  # type: ignore[arg-type]
    return dict(zip(frame["sample_id"], frame["split"], strict=True))


@SETTINGS
@given(ROWS, st.randoms(use_true_random=False), st.integers(0, 3))
def test_the_order_of_rows_is_irrelevant(rows: list[Row], random: object, seed: int) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert sides(rows, seed=seed) == sides(shuffled, seed=seed)


@SETTINGS
@given(ROWS, st.data())
def test_adding_rows_never_moves_an_old_one(rows: list[Row], data: st.DataObject) -> None:
    old = rows[: data.draw(st.integers(1, len(rows)))]
    before, content = samples_of(old)
    first = assign_splits(before, content=content)[0].frame
    after = sides(rows, previous=first)
    assert {name: after[name] for name in first["sample_id"]} == dict(zip(first["sample_id"], first["split"], strict=True))


@SETTINGS
@given(ROWS, st.integers(3, 5), st.data())
def test_adding_rows_never_changes_a_fold(rows: list[Row], folds: int, data: st.DataObject) -> None:
    old = rows[: data.draw(st.integers(1, len(rows)))]
    lone = [Row(f"z{i}", "cat", "", "") for i in range(folds)]
    before, _ = samples_of([*old, *lone], grouped=False)
    after, _ = samples_of([*rows, *lone], grouped=False)
    first = assign_splits(before, folds=folds)[0].frame.set_index("sample_id")["fold"]
    later = assign_splits(after, folds=folds, previous=first.reset_index())[0].frame.set_index("sample_id")["fold"]
    assert later.loc[first.index].tolist() == first.tolist()


@SETTINGS
@given(ROWS, st.floats(0, 0.45), st.floats(0, 0.45))
def test_groups_and_equal_images_are_never_divided(rows: list[Row], val_share: float, test_share: float) -> None:
    placed = sides(rows, val_share=val_share, test_share=test_share)
    for kind in ("group", "content"):
        for value in {getattr(row, kind) for row in rows} - {""}:
            assert len({placed[row.name] for row in rows if getattr(row, kind) == value}) == 1


@SETTINGS
@given(ROWS)
def test_every_class_is_trained_and_tested(rows: list[Row]) -> None:
    samples, _ = samples_of(rows, grouped=False)
    frame = assign_splits(samples)[0].frame
    for _, part in frame.groupby("label"):
        expected = {"train"} if len(part) < 3 else {"train", "val", "test"}
        assert expected <= set(part["split"])


@SETTINGS
@given(ROWS, st.floats(0.05, 0.4), st.floats(0.05, 0.4))
def test_ungrouped_sizes_are_within_one_of_the_quota(rows: list[Row], val: float, test: float) -> None:
    samples, _ = samples_of(rows, grouped=False)
    frame = assign_splits(samples, val_share=val, test_share=test)[0].frame
    for _, part in frame.groupby("label"):
        if len(part) * min(val, test) >= 1:
            assert abs((part["split"] == "val").sum() - val * len(part)) <= 1
            assert abs((part["split"] == "test").sum() - test * len(part)) <= 1
