"""How large the arrays are that a line of making samples works on: a few looks at the variables of the function it is in.

In: a frame of the user's, held by a thread that holds the interpreter. Out: the largest array or picture seen at each line, in
pixels. Only objects of array libraries are looked at, so that no code of the user's runs by it. A frame's variables are copied to
be read, and the copy is emptied at once (Python 3.13 needs none): functions that ask for their variables themselves, as with
`locals()`, share that copy and are left alone.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from types import FrameType
from typing import Any

_LOOKS = 3
_MAX_LINES = 200
_LIBRARIES = ("numpy", "torch", "PIL")
_OWN_LOCALS = frozenset({"locals", "vars", "dir", "eval", "exec", "_getframe"})
_COPIES = sys.version_info < (3, 13)


class Peeks:
    """What was seen in one process."""

    def __init__(self) -> None:
        self._looks: dict[tuple[str, int], int] = {}
        self._largest: dict[tuple[str, int], dict[str, Any]] = {}

    def look(self, frame: FrameType) -> None:
        """At most a few times for each line."""
        code = frame.f_code
        key = code.co_filename, frame.f_lineno or 0
        looks = self._looks.get(key, 0)
        if looks >= _LOOKS or len(self._looks) > _MAX_LINES:
            return
        self._looks[key] = looks + 1
        if not code.co_flags & inspect.CO_OPTIMIZED or _OWN_LOCALS.intersection(code.co_names):
            return
        variables = frame.f_locals
        found = _largest(variables.items())
        if _COPIES:
            variables.clear()
        if found is not None and found["px"] > self._largest.get(key, {"px": 0})["px"]:
            self._largest[key] = found

    def to_list(self) -> list[dict[str, Any]]:
        return [{"file": file, "line": line, **found} for (file, line), found in self._largest.copy().items()]


def _largest(variables: Iterable[tuple[str, Any]]) -> dict[str, Any] | None:
    """The array with the most pixels; of three dimensions the two larger ones are pixels."""
    largest: dict[str, Any] | None = None
    for name, value in variables:
        kind = type(value)
        if kind.__module__.partition(".")[0] not in _LIBRARIES:
            continue
        shape = _shape(value)
        if len(shape) < 2:
            continue
        height, width = sorted(shape[-3:])[-2:]
        if largest is None or height * width > largest["px"]:
            dtype = str(getattr(value, "dtype", "uint8")).removeprefix("torch.")
            text = f"{dtype} {'×'.join(map(str, shape))}"
            largest = {"name": name, "px": height * width, "dtype": dtype, "text": text}
    return largest


def _shape(value: Any) -> tuple[int, ...]:
    """Of arrays and tensors their shape, of a picture height and width."""
    found = getattr(value, "shape", None)
    if found is None:
        size = getattr(value, "size", None)
        found = size[::-1] if isinstance(size, tuple) else ()
    return tuple(int(number) for number in found) if isinstance(found, tuple) else ()
