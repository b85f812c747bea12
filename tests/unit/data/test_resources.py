"""Free room is compared with need, and what is short is said with both numbers."""

from __future__ import annotations

from pathlib import Path

from unchoke.data.resources import FreeRoom, ResourceNeed, diagnose_room, estimate_need, measure_room

PLENTY = FreeRoom(disk_bytes=10**12, memory_bytes=10**11, descriptors=1024)
NEED = ResourceNeed(disk_bytes=10**9, memory_bytes=10**9, descriptors=48)


def test_plenty_of_room_needs_no_words(tmp_path: Path) -> None:
    assert diagnose_room(PLENTY, NEED, tmp_path) == []


def test_small_disk_is_error_rest_warnings(tmp_path: Path) -> None:
    found = diagnose_room(FreeRoom(disk_bytes=10**8, memory_bytes=10**8, descriptors=20), NEED, tmp_path)
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
    assert large.disk_bytes - small.disk_bytes >= 49_000 * 1280 * 2
    assert viewed.disk_bytes - small.disk_bytes == 3 * 1000 * 1280 * 2
    assert 0 < large.memory_bytes - small.memory_bytes < 100_000_000
    other = estimate_need(1000, num_views=1, default_encoder=False)
    assert other.disk_bytes > small.disk_bytes


def test_room_measured_before_folder_exists(tmp_path: Path) -> None:
    room = measure_room(tmp_path / "not" / "yet")
    assert room.disk_bytes > 0
    assert room.memory_bytes > 0
    assert room.descriptors > 0
    assert not (tmp_path / "not").exists()
