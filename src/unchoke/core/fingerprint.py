"""Stable digests of values and files: the same input gives the same text on every machine and in every Python."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from unchoke.core.input_file import open_plain


def digest(value: Any) -> str:
    """SHA-256 of a JSON-able value, keys sorted."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def digest_ids(sample_ids: Iterable[str]) -> str:
    """What tells one set of samples from another, whatever their order; "" for none."""
    names = sorted(sample_ids)
    return digest(names)[:16] if names else ""


def digest_contents(contents: Mapping[str, Any]) -> str:
    """What tells samples from others under the same ids; `contents` are digests of files, or labels, by sample id."""
    return digest(sorted(contents.items()))[:16]


def digest_bytes(data: bytes | memoryview) -> str:
    """SHA-256 of bytes."""
    return hashlib.sha256(data).hexdigest()


def digest_file(path: Path | str) -> str:
    """SHA-256 of a file's content, read in pieces."""
    with open_plain(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_unit(*parts: object) -> float:
    """A number in [0, 1) that depends only on `parts`: the basis of every reproducible 'random' choice about a sample."""
    return hash_int(*parts) / 2**64


def hash_int(*parts: object) -> int:
    """A 64-bit integer that depends only on `parts`."""
    text = "\x1f".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
