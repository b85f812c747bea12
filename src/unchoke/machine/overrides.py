"""Settings a person gave, brought into the words the policy uses.

A mapping comes in (names as in the policy, or `precision` for `dtype`; None means not given), a plain dictionary goes out. A name
or value nobody could mean is refused here; what this machine cannot do is refused by the policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from unchoke.core.choices import Choice
from unchoke.core.errors import UsageError, list_some

REASON = "given on the command line"
_DTYPES = {"f32": "float32", "fp32": "float32", "float32": "float32", "bf16": "bfloat16", "bfloat16": "bfloat16",
           "f16": "float16", "fp16": "float16", "float16": "float16"}  # fmt: skip
_ENGINES = ("torch", "torch:f32", "torch:bf16", "torch:f16", "openvino", "openvino:f32", "openvino:bf16", "openvino:int8")


def choice(name: str, value: Any) -> Choice:
    """A choice that was not ours."""
    return Choice(name, value, REASON)


def normalise(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The overrides that were given, checked and spelled the policy's way."""
    wanted = {name: value for name, value in overrides.items() if value is not None and value != "auto"}
    unknown = [name for name in wanted if name not in _READERS]
    if unknown:
        raise UsageError(
            f"not a setting of the device policy: {list_some(unknown)}",
            code="unknown-settings",
            why=f"the settings are {', '.join(_READERS)}",
            try_="unchoke doctor",
        )
    readable: dict[str, Any] = {}
    for name, value in wanted.items():
        readable.update(_READERS[name](name, value))
    return readable


def _text_of(*allowed: str) -> Callable[[str, Any], dict[str, Any]]:
    def read(name: str, value: Any) -> dict[str, Any]:
        if value not in allowed:
            raise UsageError(
                f"{name} {value!r} is not known",
                code="unknown-choice",
                why=f"it is one of {', '.join(allowed)}",
                try_=f"{name}={allowed[0]}",
            )
        return {name: value}

    return read


def _any_text(name: str, value: Any) -> dict[str, Any]:
    return {name: str(value)}


def _flag(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, bool):
        raise UsageError(
            f"{name} {value!r} is not yes or no", code="unknown-choice", why="it is either on or off", try_=f"{name}=True"
        )
    return {name: value}


def _count(least: int) -> Callable[[str, Any], dict[str, Any]]:
    def read(name: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise UsageError(
                f"{name} {value!r} is not a count",
                code="out-of-range",
                why=f"it is a whole number from {least} up",
                try_=f"{name}={least}",
            )
        return {name: value}

    return read


def _precision(_: str, value: Any) -> dict[str, Any]:
    """int8 is a way to run the frozen part, not a way to compute: it chooses the engine and leaves the dtype alone."""
    if value == "int8":
        return {"engine": "openvino:int8"}
    if value not in _DTYPES:
        raise UsageError(
            f"--precision {value!r} is not known",
            code="unknown-choice",
            why="it is f32, bf16, fp16 or int8",
            try_="--precision f32",
        )
    return {"dtype": _DTYPES[value]}


_READERS: dict[str, Callable[[str, Any], dict[str, Any]]] = {
    "device": _any_text,
    "dtype": _precision,
    "precision": _precision,
    "memory_format": _text_of("channels_last", "contiguous"),
    "pin_memory": _flag,
    "non_blocking": _flag,
    "workers": _count(0),
    "decode_threads": _count(0),
    "start_method": _text_of("spawn", "fork", "forkserver"),
    "compile": _flag,
    "engine": _text_of(*_ENGINES),
    "encode_batch": _count(1),
    "job_slots": _count(1),
}
