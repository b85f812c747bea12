from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errors import refused
from unchoke.core.listing import FileEntry
from unchoke.data.manifest import load_manifest, recall_manifest, render_manifest, save_manifest
from unchoke.data.sample_set import Samples, TaskSpec, build_samples

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


def samples_of(ids: list[str], labels: list[str]) -> Samples:
    entries = [FileEntry(f"/d/{name}", name, 1, 1) for name in ids]
    task = TaskSpec("classification", tuple(sorted(set(labels))))
    return build_samples(task, entries, sample_ids=ids, values={"label": labels}, groups=labels, splits=["train"] * len(ids))


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(TEXT, TEXT, min_size=1, max_size=6))
def test_any_text_survives_saving_and_loading(tmp_path_factory: pytest.TempPathFactory, cells: dict[str, str]) -> None:
    file = tmp_path_factory.mktemp("manifest") / "manifest.csv"
    samples = samples_of(list(cells), list(cells.values()))
    save_manifest(samples, file)
    loaded = load_manifest(file)
    assert loaded is not None
    for column in ("sample_id", "path", "label", "group", "split"):
        assert loaded[column].tolist() == samples.frame[column].tolist()


def test_targets_and_folds_keep_every_digit(tmp_path: Path) -> None:
    entries = [FileEntry(f"/d/{i}", str(i), 1, 1) for i in range(3)]
    values = [0.1 + 0.2, 1e-300, -3.0]
    samples = build_samples(TaskSpec("regression", ("dry, g",)), entries, sample_ids=["NA", "1", "2"], values={"dry, g": values})
    save_manifest(samples.with_columns(fold=[2, 0, 1]), tmp_path / "m.csv")
    loaded = load_manifest(tmp_path / "m.csv")
    assert loaded is not None
    assert loaded["sample_id"].tolist() == ["1", "2", "NA"]
    assert loaded["dry, g"].tolist() == [1e-300, -3.0, 0.1 + 0.2]
    assert loaded["fold"].tolist() == [2, 0, 1]


def test_the_same_samples_give_the_same_bytes_in_any_order() -> None:
    samples = samples_of(["b", "a", "c"], ["x", "y", "x"])
    shuffled = Samples(samples.task, samples.frame.iloc[::-1])
    assert render_manifest(samples) == render_manifest(shuffled)
    assert render_manifest(samples).startswith(b"sample_id,path,label,group,split\na,/d/a,y,y,train\n")


def test_saving_again_leaves_the_file_alone(tmp_path: Path) -> None:
    samples = samples_of(["a", "b"], ["x", "y"])
    save_manifest(samples, tmp_path / "m.csv")
    before = (tmp_path / "m.csv").stat()
    save_manifest(samples, tmp_path / "m.csv")
    assert (tmp_path / "m.csv").stat().st_ino == before.st_ino


def test_there_may_be_no_manifest_yet(tmp_path: Path) -> None:
    assert load_manifest(tmp_path / "m.csv") is None


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "sample_id,path,split,dry\na,/d,train,much\n", "sample_id,path,split\n\xff"])
def test_a_spoilt_manifest_is_explained(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.csv").write_bytes(text.encode("latin-1"))
    with refused("damaged-manifest", f"rm {tmp_path / 'm.csv'}"):
        load_manifest(tmp_path / "m.csv")


def test_text_columns_stay_text(tmp_path: Path) -> None:
    import pandas as pd

    save_manifest(samples_of(["007", "1e3"], ["01", "1"]), tmp_path / "m.csv")
    loaded = load_manifest(tmp_path / "m.csv")
    assert isinstance(loaded, pd.DataFrame)
    assert loaded["label"].tolist() == ["01", "1"]


def test_inputs_keep_every_digit(tmp_path: Path) -> None:
    entries = [FileEntry(f"/d/{i}", str(i), 1, 1) for i in range(2)]
    inputs = {"NDVI, mean": [0.1 + 0.2, 1e-300]}
    samples = build_samples(TaskSpec("regression", ("y",)), entries, sample_ids=["b", "a"], values={"y": [1, 2]}, inputs=inputs)
    save_manifest(samples, tmp_path / "m.csv")
    assert (tmp_path / "m.csv").read_text().startswith('sample_id,path,y,"input/NDVI, mean",group,split\n')
    loaded = load_manifest(tmp_path / "m.csv")
    assert loaded is not None
    assert loaded["input/NDVI, mean"].tolist() == [1e-300, 0.1 + 0.2]


@pytest.mark.parametrize("sealed", [True, False])
def test_half_a_manifest_refused(tmp_path: Path, sealed: bool) -> None:
    file = tmp_path / "manifest.csv"
    save_manifest(samples_of(["a", "b", "c", "d"], ["x", "y", "x", "y"]), file)
    if not sealed:
        (tmp_path / "SHA256SUMS").unlink()
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2 + 3])
    with refused("damaged-file" if sealed else "damaged-manifest", f"rm {file}"):
        load_manifest(file)


def test_a_manifest_that_was_there_once_is_missed(tmp_path: Path) -> None:
    told: list[str] = []
    assert recall_manifest(tmp_path / "manifest.csv", told.append) is None
    save_manifest(samples_of(["a"], ["x"]), tmp_path / "manifest.csv")
    assert recall_manifest(tmp_path / "manifest.csv", told.append) is not None
    assert not told
    (tmp_path / "manifest.csv").unlink()
    assert recall_manifest(tmp_path / "manifest.csv", told.append) is None
    assert len(told) == 1


def test_manifest_without_checksum_gets_one_on_save(tmp_path: Path) -> None:
    file, samples = tmp_path / "manifest.csv", samples_of(["a"], ["x"])
    file.write_bytes(render_manifest(samples))
    assert load_manifest(file) is not None
    save_manifest(samples, file)
    assert (tmp_path / "SHA256SUMS").exists()
