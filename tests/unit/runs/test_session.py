"""What a command says of data that a workspace remembers."""

from __future__ import annotations

from pathlib import Path

from errors import refused
from unchoke.core.events import ignore
from unchoke.runs.session import open_session


def test_remembered_data_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "unchoke.toml").write_text('data = "photos-of-yesterday"\n')
    with refused("no-such-file") as caught, open_session({}, out=tmp_path, on_event=ignore):
        pass
    assert str(tmp_path / "unchoke.toml") in caught.value.why and f"unchoke fit PHOTOS --out {tmp_path}" in caught.value.try_
