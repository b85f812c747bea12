"""Digests are the same everywhere: the values here were written down once."""

from __future__ import annotations

import hashlib
import subprocess
import sys

from unchoke.core.fingerprint import digest, hash_int, hash_unit


def test_digest_ignores_only_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})
    assert len({digest(value) for value in ({"a": 1}, {"a": "1"}, {"a": 1.5}, ["a", 1], {"a": [1]})}) == 5
    assert digest({"é": 1}) == hashlib.sha256(b'{"\\u00e9":1}').hexdigest()


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
