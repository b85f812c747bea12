"""One look at the networks of a process: every call of a module, timed down to the third level, summed up by its name.

In: torch's global module hooks, from `begin` to `end`. Out: rows as in a record's `modules`: times, calls, shapes, and what is
trained. Calls in other threads than the one that began are left out (replicas of DataParallel). When to look is decided in
`modules.py`.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from time import perf_counter
from typing import Any

from unchoke.chokes.watch.stacks import NOWHERE, StackPlace, is_user_code, user_place

_MAX_DEPTH = 3
_MAX_ROWS = 64
_MAX_KNOWN = 4_096
_ENOUGH = 8_192
_ENOUGH_REPEATED = 1_024
_VALUES = 64


class _OpenCall:
    """A module that is being called."""

    __slots__ = ("began_s", "module", "name", "place")

    def __init__(self, module: Any, name: str, place: StackPlace) -> None:
        self.module = module
        self.name = name
        self.place = place
        self.began_s = perf_counter()


class ModuleCalls:
    """What one module did while it was timed; shapes are those of its last call."""

    def __init__(self, module: Any, name: str, depth: int, place: StackPlace) -> None:
        self.module = module
        self.name = name
        self.depth = depth
        self.place = place
        self.calls = 0
        self.seconds = 0.0
        self.facts: dict[str, Any] = {}

    def to_dict(self, parts: int, in_optimizer: set[int]) -> dict[str, Any]:
        """`parts`: steps (or evaluated batches) that were timed."""
        file, line = _place_of_class(self.module) or self.place[:2]
        parameters = list(self.module.parameters())
        return {
            "name": self.name,
            "class": type(self.module).__name__,
            "file": file,
            "line": line,
            "call_file": self.place[0],
            "call_line": self.place[1],
            "depth": self.depth,
            "calls_per_step": self.calls / parts,
            "seconds_per_step": self.seconds / parts,
            "training": self.module.training,
            "num_params": _num_values(parameters),
            "num_trainable": _num_values(one for one in parameters if one.requires_grad),
            "num_in_optimizer": _num_values(one for one in parameters if id(one) in in_optimizer),
            **self.facts,
        }


class ModuleTimer:
    """Hooks on all modules, from `begin` to `end`, their inside run by `safely`. `roots` counts calls from outside any module.

    `is_wanted` is asked for each of those; where it says no, the call and all inside it are passed over.
    """

    def __init__(self, safely: Callable[[Callable[[], None]], None], is_wanted: Callable[[Any], bool]) -> None:
        self.roots = 0
        self.anomaly = False
        self.autocast: str | None = None
        self._safely = safely
        self._is_wanted = is_wanted
        self._passing: Any = None
        self._thread = 0
        self._running: list[_OpenCall] = []
        self._names: dict[int, str] = {}
        self._rows: dict[int, ModuleCalls] = {}
        self._handles: list[Any] = []

    def begin(self) -> None:
        from torch.nn.modules import module

        self._thread = threading.get_ident()
        self._handles = [
            module.register_module_forward_pre_hook(self._before),
            module.register_module_forward_hook(self._after, with_kwargs=True),
        ]

    def end(self) -> None:
        while self._handles:
            self._handles.pop().remove()
        self._running.clear()

    def rows(self) -> list[ModuleCalls]:
        """The networks themselves, and of their parts those that took longest."""
        rows = sorted(self._rows.values(), key=lambda row: (row.depth > 0, -row.seconds))
        return rows[:_MAX_ROWS]

    def _before(self, module: Any, _args: Any) -> None:
        if threading.get_ident() == self._thread:
            self._safely(partial(self._entered, module))

    def _entered(self, module: Any) -> None:
        if self._passing is not None:
            return
        depth = len(self._running)
        if depth == 0:
            if not self._is_wanted(module):
                self._passing = module
                return
            self.roots += 1
            if id(module) not in self._names:
                self._name_parts(module)
        place = user_place(2) if depth <= _MAX_DEPTH else NOWHERE
        self._running.append(_OpenCall(module, self._names.get(id(module), type(module).__name__), place))

    def _name_parts(self, root: Any) -> None:
        """By the root's class, numbered where there are several of a class."""
        taken = set(self._names.values())
        kind = type(root).__name__
        candidates = itertools.chain([kind], (f"{kind}#{number}" for number in itertools.count(2)))
        root_name = next(name for name in candidates if name not in taken)
        for name, module in root.named_modules():
            self._names.setdefault(id(module), f"{root_name}.{name}" if name else root_name)

    def _after(self, module: Any, args: Any, options: Any, output: Any) -> None:
        if threading.get_ident() == self._thread:
            self._safely(partial(self._left, module, perf_counter(), args, options, output))

    def _left(self, module: Any, ended_s: float, args: Any, options: Any, output: Any) -> None:
        if self._passing is not None:
            self._passing = None if module is self._passing else self._passing
            return
        while self._running:  # a call that failed has left its entry behind
            running = self._running.pop()
            if running.module is module:
                self._add(running, ended_s - running.began_s, args, options, output)
                return

    def _add(self, running: _OpenCall, seconds: float, args: Any, options: Any, output: Any) -> None:
        depth = len(self._running)
        if depth > _MAX_DEPTH:
            return
        row = self._rows.get(id(running.module))
        if row is None:
            row = self._rows[id(running.module)] = ModuleCalls(running.module, running.name, depth, running.place)
        row.calls += 1
        row.seconds += seconds
        given, made = first_tensor((args, options)), first_tensor(output)
        row.facts = _call_facts(given, made)
        if depth == 0 and given is not None:
            self.autocast = self.autocast or _autocast_dtype(given)
            self.anomaly = self.anomaly or sys.modules["torch"].is_anomaly_enabled()


def _call_facts(given: Any, made: Any) -> dict[str, Any]:
    import torch

    return {
        "batch": int(given.shape[0]) if given is not None and given.dim() else None,
        "input_shape": list(given.shape) if given is not None else None,
        "input_requires_grad": bool(given is not None and given.requires_grad),
        "output_requires_grad": bool(made is not None and made.requires_grad),
        "dtype": str(made.dtype).removeprefix("torch.") if made is not None else None,
        "grad_enabled": torch.is_grad_enabled(),
        "output_width": int(made.shape[-1]) if made is not None and made.dim() else None,
    }


def _autocast_dtype(tensor: Any) -> str | None:
    import torch

    kind = tensor.device.type
    return str(torch.get_autocast_dtype(kind)).removeprefix("torch.") if torch.is_autocast_enabled(kind) else None


def _place_of_class(module: Any) -> tuple[str, int] | None:
    code = getattr(getattr(type(module), "forward", None), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code is not None and is_user_code(code) else None


def _num_values(parameters: Iterable[Any]) -> int:
    return sum(parameter.numel() for parameter in parameters)


def first_tensor(values: Any) -> Any:
    """The first tensor of some arguments or results, however they are nested; None without one."""
    return next(tensors_in(values), None)


def tensors_in(values: Any, depth: int = 4) -> Iterator[Any]:
    """The tensors of a batch, of arguments or of results, in order; containers are opened down to `depth`."""
    import torch

    if isinstance(values, torch.Tensor):
        yield values
    elif depth and isinstance(values, Mapping):
        for value in values.values():
            yield from tensors_in(value, depth - 1)
    elif depth and isinstance(values, list | tuple):
        for value in values:
            yield from tensors_in(value, depth - 1)


class Repeats:
    """How many samples one module has seen, and how many of them again, counted from the first one that came again.

    So a first epoch does not count. A sample is known by a few of its values. Tensors on a device are left out: reading waits.
    """

    def __init__(self) -> None:
        self.seen = 0
        self.repeated = 0
        self._since = 0
        self._known: set[int] = set()

    def add(self, inputs: Any) -> None:
        """The inputs of one call: a tensor whose first dimension counts samples."""
        for sample in _fingerprints(inputs):
            again = sample in self._known
            self.seen += 1
            self.repeated += again
            self._since += again or self.repeated > 0
            if not again and len(self._known) < _MAX_KNOWN:
                self._known.add(sample)

    @property
    def is_done(self) -> bool:
        return self.seen >= _ENOUGH or self.repeated >= _ENOUGH_REPEATED

    def to_dict(self) -> dict[str, Any]:
        """The share is None where nothing was seen; where no sample came again it is 0."""
        share = self.repeated / max(1, self._since) if self.seen else None
        return {"inputs_seen": self.seen, "inputs_repeated": self.repeated, "repeated_inputs_share": share}


def _fingerprints(inputs: Any) -> list[int]:
    """One number for each sample, from values spread over it."""
    if inputs.dim() < 2 or not inputs.is_cpu or not inputs.numel():
        return []
    flat = _flat(inputs.detach())
    stride = max(1, flat.shape[1] // _VALUES)
    values = flat[:, ::stride][:, :_VALUES].float().contiguous()
    plain_numpy = sys.modules[
        "torch"
    ]._C.TensorBase.numpy  # the method itself: what the watcher reads is not the script's reading
    return [hash(row.tobytes()) for row in plain_numpy(values)]


def _flat(inputs: Any) -> Any:
    """The samples as rows, without copying where the layout allows it."""
    if inputs.dim() == 4 and not inputs.is_contiguous():
        by_channel = inputs.permute(0, 2, 3, 1)
        inputs = by_channel if by_channel.is_contiguous() else inputs[:, :1]
    return inputs.reshape(inputs.shape[0], -1)
