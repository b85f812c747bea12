"""How what is typed, or written in a file, becomes the value of a setting: one function for each form that is not a plain value.

In: text, a number, a list. Out: the value, or a ValueError that says what it should have been.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from unchoke.core.errors import UsageError
from unchoke.core.units import parse_bytes

SMALLEST_TILE_PX, LARGEST_TILE_PX = 16, 16384


@dataclass(frozen=True)
class ValueParser:
    """For pydantic: a value goes through `parse` before its type is checked. Its own would load pydantic with every command."""

    parse: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(self.parse, handler(source))


def refuse_number(option: str, value: float | None, *, example: str, most: float = 1e9) -> None:
    """Refuse what a command that counts or waits for `value` cannot work with: nothing, less, no number, no end."""
    if value is None or 0 < value <= most:
        return
    why = "it must be above 0" if value <= 0 else f"it must be a number up to {most:g}"
    raise UsageError(f"{option} {value:g} cannot be used", code="out-of-range", why=why, try_=f"{option} {example}")


def parse_fold(value: Any) -> Any:
    """A number, typed or written, or the word `all`."""
    text = str(value).strip().lower()
    if text != "all" and not re.fullmatch(r"[0-9]+", text):
        raise ValueError("should be the number of a fold, counted from 0, or the word all")
    return text if text == "all" else int(text)


def parse_cut(value: Any) -> str:
    """`end`, `blocks`, `none` or a negative number, which a file may hold as such; for masks `pyramid`, which is their `end`."""
    text = str(value).strip().lower()
    if not re.fullmatch(r"end|blocks|pyramid|none|-[1-9][0-9]*", text):
        raise ValueError("should be end, blocks, none, or -k to train the last k blocks, for instance -4")
    return text


def parse_tiles(value: Any) -> str:
    match = re.fullmatch(r"([1-9][0-9]?)[x×]([1-9][0-9]?)", str(value).strip().lower())
    if match is None:
        raise ValueError("should be ROWSxCOLUMNS, each from 1 to 99, for instance 2x2")
    return f"{match[1]}x{match[2]}"


def parse_memory(value: Any) -> str:
    """A size as it was written, once it can be read."""
    text = str(value).strip()
    try:
        num_bytes = parse_bytes(text)
    except UsageError as error:
        raise ValueError("should be a size like 4GB or 3.2GiB") from error
    if num_bytes < 1:
        raise ValueError("should be more than nothing")
    return text


def parse_sums(value: Any) -> Any:
    """``NAME=A+B``, one or several of them, as a table; a table stays one."""
    if isinstance(value, str | Sequence):
        pairs = [_pair(text, "NAME=A+B", last=False) for text in _texts(value)]
        value = {name: [part.strip() for part in parts.split("+")] for name, parts in pairs}
    if isinstance(value, dict) and not all(name and parts and all(parts) for name, parts in value.items()):
        raise ValueError("every sum needs a name and the names of its parts, NAME=A+B")
    return value


def parse_weights(value: Any) -> Any:
    """``NAME=W``, one or several of them, as a table; a table stays one."""
    return dict(_pair(text, "NAME=WEIGHT", last=True) for text in _texts(value)) if isinstance(value, str | Sequence) else value


def _texts(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [str(item) for item in value]


def _pair(text: str, form: str, *, last: bool) -> tuple[str, str]:
    name, sign, rest = text.rpartition("=") if last else text.partition("=")
    if not (sign and name.strip() and rest.strip()):
        raise ValueError(f"should look like {form}")
    return name.strip(), rest.strip()


def parse_tile_size(value: Any) -> Any:
    """A number of pixels, or the word `auto`."""
    text = str(value).strip().lower()
    if text == "auto":
        return text
    if not re.fullmatch(r"[0-9]+", text) or not SMALLEST_TILE_PX <= int(text) <= LARGEST_TILE_PX:
        raise ValueError(f"should be a number of pixels from {SMALLEST_TILE_PX} to {LARGEST_TILE_PX}, or the word auto")
    return int(text)


def parse_several(value: Any) -> Any:
    """One text, or several."""
    return (value,) if isinstance(value, str) else value


def parse_names(value: Any) -> Any:
    """``B2,B3`` typed once, or once for each."""
    return tuple(part.strip() for text in _texts(value) for part in text.split(",") if part.strip())


def parse_class_names(value: Any) -> Any:
    """``clear,cloud`` typed once, or once for each; the place of a name is its number, so that none is empty or comes twice."""
    names = tuple(part.strip() for text in _texts(value) for part in text.split(","))
    if names and (not all(names) or len(set(names)) < len(names)):
        raise ValueError("should be one name for each class, none of them empty or twice, for instance clear,cloud")
    return names


def parse_strides(value: Any) -> Any:
    """``4,8,16,32``, or a list of numbers: ascending powers of two."""
    parts = value.replace("/", ",").split(",") if isinstance(value, str) else list(value)
    strides = tuple(int(part) for part in parts if str(part).strip().isdigit())
    if len(strides) != len(parts) or sorted(set(strides)) != list(strides) or any(one < 1 or one & (one - 1) for one in strides):
        raise ValueError("should be ascending powers of two, for instance 4,8,16,32")
    return strides


def parse_normalise(value: Any) -> str:
    """`none`, `max`, `max:sample`, `percentile`, `percentile:LOW,HIGH`, a number, or NAME=NUMBER for each band."""
    text = str(value).strip()
    number = r"[0-9]+(?:\.[0-9]+)?"
    forms = rf"none|max(?::all|:sample)?|percentile(?::{number},{number})?|{number}|[^=,]+={number}(?:,[^=,]+={number})*"
    if not re.fullmatch(forms, text):
        raise ValueError("should be none, max, max:sample, percentile, percentile:2,98, a number like 10000, or B2=10000,B3=9000")
    return text


def parse_long(value: Any) -> Any:
    """``NAME,VALUE``, or the two columns by themselves."""
    return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value
