"""Numbers with units, to and from text. Pure functions, nothing else."""

from __future__ import annotations

import re

from unchoke.core.errors import UsageError
from unchoke_doctor.units import format_bytes as format_bytes
from unchoke_doctor.units import format_count as format_count
from unchoke_doctor.units import format_number as format_number
from unchoke_doctor.units import format_seconds as format_seconds

_BYTE_UNITS = {"": 1, "b": 1, "k": 10**3, "kb": 10**3, "kib": 2**10, "m": 10**6, "mb": 10**6, "mib": 2**20,
               "g": 10**9, "gb": 10**9, "gib": 2**30, "t": 10**12, "tb": 10**12, "tib": 2**40}  # fmt: skip
_MOST_BYTES = 10**18


def parse_bytes(text: str) -> int:
    """``"4GB"`` to 4,000,000,000 and ``"4GiB"`` to 4,294,967,296."""
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-zA-Z]*)\s*", text)
    if match is None or match[2].lower() not in _BYTE_UNITS:
        raise UsageError(
            f"not a size: {text!r}", code="bad-size", why="a size is a number and a unit", try_="write it like 4GB or 512MiB"
        )
    num_bytes = float(match[1]) * _BYTE_UNITS[match[2].lower()]
    if num_bytes > _MOST_BYTES:
        shown = text if len(text) <= 40 else text[:40] + "…"
        raise UsageError(
            f"not a size: {shown!r}", code="bad-size", why="no machine has that much", try_="write it like 4GB or 512MiB"
        )
    return int(num_bytes)
