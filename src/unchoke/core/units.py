"""Numbers with units, to and from text. Pure functions, nothing else."""

from __future__ import annotations

import re

from unchoke.core.errors import UsageError

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
        raise UsageError(
            f"not a size: {_shortened(text)}", code="bad-size", why="no machine has that much", try_="write it like 4GB or 512MiB"
        )
    return int(num_bytes)


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")


def format_bytes(num_bytes: float) -> str:
    """``1536`` as ``1.5 kB``."""
    value = float(num_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < (999.5 if unit == "B" else 999.95):  # what rounds to 1000 belongs to the next unit
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def format_seconds(seconds: float) -> str:
    """``75.2`` as ``1 min 15 s``; short times keep the digits that matter."""
    if 0 < seconds < 0.0005:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def format_count(number: int, noun: str, plural: str | None = None) -> str:
    """``format_count(1, "image")`` is ``1 image``; ``2,000 images`` otherwise."""
    word = noun if number == 1 else (plural or noun + "s")
    return f"{number:,} {word}"


def format_number(value: float) -> str:
    """Three digits that matter: ``0.742``, ``6.21``, ``11.9``, ``1,204``; very small numbers as ``3e-05``."""
    size = abs(value)
    if 0 < size < 0.001:
        return f"{value:.2g}"
    digits = 3 if size < 1 else 2 if size < 10 else 1 if size < 100 else 0
    return f"{value:,.{digits}f}"
