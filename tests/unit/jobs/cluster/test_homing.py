"""Files that a job writes on a node, and how they come home."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from errors import refused
from unchoke.jobs.cluster.homing import SentFile, marked, put_in_place, writing_for


def test_a_folder_is_known_by_its_mark_and_the_mark_goes(tmp_path: Path) -> None:
    with marked(tmp_path / "features") as shared:
        assert shared.is_here()
        assert not replace(shared, folder=tmp_path).is_here()
        assert not replace(shared, content="another").is_here()
    assert list((tmp_path / "features").iterdir()) == []


def test_what_is_written_to_a_shared_folder_does_not_travel(tmp_path: Path) -> None:
    with marked(tmp_path) as shared, writing_for(shared, shares=True) as (folder, files):
        assert folder == tmp_path
    assert files == {}


def test_what_is_written_elsewhere_comes_home_as_it_was(tmp_path: Path) -> None:
    with marked(tmp_path / "home") as shared:
        with writing_for(shared, shares=False) as (folder, files):
            assert folder != tmp_path / "home"
            (folder / "deep").mkdir()
            (folder / "deep" / "one.bin").write_bytes(b"one")
            (folder / "two.bin").write_bytes(b"two")
        assert not folder.exists()
        put_in_place(tmp_path / "home", files, artefact="two.bin")
    assert (tmp_path / "home" / "deep" / "one.bin").read_bytes() == b"one"
    assert (tmp_path / "home" / "two.bin").read_bytes() == b"two"


def test_file_changed_on_its_way_is_refused(tmp_path: Path) -> None:
    good = SentFile(b"good", "770e607624d689265ca6c44884d0807d9b054d23c473c106c72be9de08b7376c")
    with refused("damaged-transfer", "a.bin"):
        put_in_place(tmp_path, {"a.bin": replace(good, data=b"bad"), "z.bin": good}, artefact="z.bin")
    assert not (tmp_path / "z.bin").exists()
