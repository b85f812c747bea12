from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from unchoke.core.fingerprint import digest_bytes, digest_file
from unchoke.core.ranged_file import BLOCK_BYTES, RangedFile, open_url
from web import Web, serve


@pytest.fixture
def web() -> Iterator[Web]:
    with serve() as found:
        yield found


def test_parts_fetch_only_their_blocks(web: Web) -> None:
    data = os.urandom(3 * BLOCK_BYTES + 1000)
    web.files["/a.bin"] = data
    with open_url(f"{web.url}/a.bin") as file:
        assert file.read(10) == data[:10]
        file.seek(-500, os.SEEK_END)
        assert file.read() == data[-500:]
        assert len(web.ranged) == 2
        file.seek(BLOCK_BYTES - 5)
        assert file.read(BLOCK_BYTES) == data[BLOCK_BYTES - 5 : 2 * BLOCK_BYTES - 5]
    assert digest_file(f"{web.url}/a.bin") == digest_bytes(data)


def test_reading_past_the_end_gives_nothing(web: Web) -> None:
    web.files["/a.bin"] = b"abc"
    file = RangedFile(f"{web.url}/a.bin")
    file.seek(10)
    assert file.read(5) == b""
    with pytest.raises(FileNotFoundError):
        RangedFile(f"{web.url}/none.bin")
