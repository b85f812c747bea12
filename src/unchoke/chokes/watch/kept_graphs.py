"""Whether results of earlier steps are still held together with their graphs, and by what: a look at young objects after a step.

In: this process's heap and stack, right after an optimizer step. Out: how many tensors with a graph are alive, how many nodes
hang on them, and where many are, the variable of the user's that holds them. Only young objects are looked at (what a few dozen
steps have made), so that a look takes about a millisecond; graphs are walked up to a limit. Nothing is freed, and nothing is
kept.
"""

from __future__ import annotations

import gc
import linecache
import re
import sys
from collections import Counter, deque
from collections.abc import Iterator
from types import FrameType, ModuleType
from typing import Any

from unchoke.chokes.watch.places import is_user_code

_MAX_NODES = 5_000
_MAX_WALKED = 20
_MANY = 8


def kept_graphs(step: int) -> dict[str, Any]:
    """What is alive now; `by` counts the operations that made the tensors."""
    tensors = _young_tensors()
    made_by = Counter(tensor.grad_fn.name() for tensor in tensors)
    found: dict[str, Any] = {
        "step": step,
        "tensors": len(tensors),
        "nodes": _num_nodes(tensors),
        "by": dict(made_by.most_common(5)),
    }
    if len(tensors) >= _MANY:
        found["holder"] = _holder()
    return found


def _young_tensors() -> list[Any]:
    import torch

    young = [found for generation in (0, 1) for found in gc.get_objects(generation=generation) if type(found) is torch.Tensor]
    return [tensor for tensor in young if tensor.grad_fn is not None]


def _num_nodes(tensors: list[Any]) -> int:
    """Nodes of the graphs that hang on the first few tensors, counted up to a limit."""
    waiting = [tensor.grad_fn for tensor in tensors[:_MAX_WALKED]]
    seen = set(waiting)
    while waiting and len(seen) < _MAX_NODES:
        for node, _ in waiting.pop().next_functions:
            if node is not None and node not in seen:
                seen.add(node)
                waiting.append(node)
    return len(seen)


def _holder() -> dict[str, Any] | None:
    """The variable of a running user function that holds many results with graphs, and the line that adds to it."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if is_user_code(frame.f_code):
            for name, value in _variables(frame):
                if _holds_graphs(value):
                    return {"name": name, "file": frame.f_code.co_filename, "line": _line_that_adds(frame, name)}
        frame = frame.f_back
    return None


def _variables(frame: FrameType) -> Iterator[tuple[str, Any]]:
    """Local variables, what dictionaries among them hold, and the attributes of objects of the user's own classes."""
    for name, value in list(frame.f_locals.items()):
        yield name, value
        if isinstance(value, dict) and value is not frame.f_locals:
            yield from ((f"{name}[{key!r}]", inner) for key, inner in list(value.items()))
        elif hasattr(value, "__dict__") and not isinstance(value, type | ModuleType):
            yield from ((f"{name}.{attribute}", inner) for attribute, inner in list(vars(value).items()))


def _holds_graphs(value: Any) -> bool:
    if not isinstance(value, list | deque) or len(value) < _MANY:
        return False
    last = value[-1][0] if isinstance(value[-1], tuple) and value[-1] else value[-1]
    return getattr(last, "grad_fn", None) is not None


def _line_that_adds(frame: FrameType, name: str) -> int:
    """The first line of the function that adds to the variable; where none is found, the line that runs."""
    adds = re.compile(rf"(?<![\w.]){re.escape(name)}(\.append|\.extend|\.insert|\s*\+=)".replace("'", "['\"]"))
    lines = [line for _, _, line in frame.f_code.co_lines() if line]
    for line in range(min(lines), max(lines) + 1):
        if adds.search(linecache.getline(frame.f_code.co_filename, line)):
            return line
    return frame.f_lineno
