"""Numbers with units, as text."""

from __future__ import annotations


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
