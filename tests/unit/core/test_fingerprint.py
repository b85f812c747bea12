"""Digests are the same everywhere: the values here were written down once."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from unchoke.core.fingerprint import digest, digest_bytes, digest_file, hash_int, hash_unit


def test_digest_ignores_only_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})
    assert len({digest(value) for value in ({"a": 1}, {"a": "1"}, {"a": 1.5}, ["a", 1], {"a": [1]})}) == 5
    assert digest({"é": 1}) == hashlib.sha256(b'{"\\u00e9":1}').hexdigest()


def test_a_file_and_its_bytes_have_one_digest(tmp_path: Path) -> None:
    data = bytes(range(256)) * 5000
    (tmp_path / "f").write_bytes(data)
    assert digest_file(tmp_path / "f") == digest_bytes(data) == digest_bytes(memoryview(data)) == hashlib.sha256(data).hexdigest()


def test_hashes_depend_on_their_parts_and_where_they_end() -> None:
    assert hash_int("a", "bc") != hash_int("ab", "c")
    assert 0 <= hash_unit("x", 3) < 1
    assert hash_int("\udcff") != hash_int("?")


def test_hashes_do_not_depend_on_the_hash_seed() -> None:
    code = "from unchoke.core.fingerprint import *; print(hash_int('view', 'a/ü.jpg', 3), digest(['x', 1.5]))"
    answers = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert answers == {f"{hash_int('view', 'a/ü.jpg', 3)} {digest(['x', 1.5])}\n"}


def test_hash_units_spread_evenly() -> None:
    units = [hash_unit("sample", number) for number in range(2000)]
    assert all(150 < sum(low <= unit < low + 0.1 for unit in units) < 250 for low in (0, 0.3, 0.6, 0.9))
