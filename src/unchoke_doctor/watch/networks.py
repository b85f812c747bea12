"""A deep look at the network for a few steps: which parts run, how often, on what, and which of them are trained.

In: torch, once the script has imported it. After three optimizer steps every call of a module is timed for three steps, down to
the third level; once more while evaluating; then the hooks are taken away. Out:
`modules`, one row for each part, and facts: torch's settings, results of earlier steps that are still held
together with their graphs. Parts that no optimizer trains are watched longer, for inputs that come again. A network that torch
compiles is left alone: a hook would have it compiled anew. Hooks never stick to the user's own objects, which may be copied.
"""

from __future__ import annotations

import linecache
import re
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from time import perf_counter
from types import FrameType, ModuleType
from typing import Any

from unchoke_doctor.watch import hooks
from unchoke_doctor.watch.hooks import Function
from unchoke_doctor.watch.recorder import Recorder
from unchoke_doctor.watch.stacks import NOWHERE, StackPlace, is_user_code, user_place

_LOOK_AFTER, _LOOK_FOR = 3, 3
_KEPT_AT = (8, 20, 40, 80)
_EVALUATED_CALLS = 8
_MANY, _MAX_GRAPH = 8, 20_000
_MAX_DEPTH, _MAX_ROWS = 3, 64
_LARGE_MATRIX = 1_000_000
_MAX_KNOWN, _ENOUGH, _ENOUGH_REPEATED, _VALUES = 4_096, 8_192, 1_024, 64


class _Part:
    """What one module did while it was timed; `facts` are those of its last call."""

    def __init__(self, module: Any, name: str, depth: int, place: StackPlace) -> None:
        self.module, self.name, self.depth, self.place = module, name, depth, place
        self.calls = 0
        self.seconds = 0.0
        self.facts: dict[str, Any] = {}

    def to_dict(self, passes: int, in_optimizer: set[int]) -> dict[str, Any]:
        """`passes`: steps (or evaluated batches) that were timed."""
        code = getattr(getattr(type(self.module), "forward", None), "__code__", None)
        own = code is not None and is_user_code(code)
        parameters = list(self.module.parameters())
        return {
            "name": self.name,
            "class": type(self.module).__name__,
            "file": code.co_filename if own and code else self.place[0],
            "line": code.co_firstlineno if own and code else self.place[1],
            "call_file": self.place[0],
            "call_line": self.place[1],
            "depth": self.depth,
            "calls_per_step": self.calls / passes,
            "seconds_per_step": self.seconds / passes,
            "training": self.module.training,
            "sparse": bool(getattr(self.module, "sparse", False)),
            "num_params": _num_values(parameters),
            "num_trainable": _num_values(one for one in parameters if one.requires_grad),
            "num_in_optimizer": _num_values(one for one in parameters if id(one) in in_optimizer),
            **self.facts,
        }


class _Look:
    """Hooks on all modules, from `begin` to `end`. `roots` counts calls from outside any module.

    `is_wanted` is asked for each of those; where it says no, the call and all inside it are passed over. Calls in other threads
    are left out (replicas of DataParallel).
    """

    def __init__(self, safely: Callable[[Callable[[], None]], None], is_wanted: Callable[[Any], bool]) -> None:
        self.roots = 0
        self.anomaly = False
        self._safely, self._is_wanted = safely, is_wanted
        self._passing: Any = None
        self._thread = threading.get_ident()
        self._running: list[tuple[Any, str, StackPlace, float]] = []
        self._names: dict[int, str] = {}
        self._parts: dict[int, _Part] = {}
        self._handles: list[Any] = []

    def begin(self) -> None:
        from torch.nn.modules import module

        self._handles = [
            module.register_module_forward_pre_hook(self._before),
            module.register_module_forward_hook(self._after, with_kwargs=True),
        ]

    def end(self) -> None:
        while self._handles:
            self._handles.pop().remove()
        self._running.clear()

    def rows(self) -> list[_Part]:
        """The networks themselves, and of their parts those that took longest."""
        return sorted(self._parts.values(), key=lambda part: (part.depth > 0, -part.seconds))[:_MAX_ROWS]

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
        self._running.append((module, self._names.get(id(module), type(module).__name__), place, perf_counter()))

    def _name_parts(self, root: Any) -> None:
        """By the root's class, numbered where there are several of a class."""
        taken, kind = set(self._names.values()), type(root).__name__
        root_name, number = kind, 2
        while root_name in taken:
            root_name, number = f"{kind}#{number}", number + 1
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
            running, name, place, began_s = self._running.pop()
            if running is not module:
                continue
            depth = len(self._running)
            if depth <= _MAX_DEPTH:
                part = self._parts.setdefault(id(module), _Part(module, name, depth, place))
                part.calls += 1
                part.seconds += ended_s - began_s
                part.facts = self._call_facts(depth, next(tensors_in((args, options)), None), next(tensors_in(output), None))
                part.facts["zero_share"] = _zero_share([*tensors_in((args, options)), *module.buffers(recurse=False)])
            return

    def _call_facts(self, depth: int, given: Any, made: Any) -> dict[str, Any]:
        torch = sys.modules["torch"]
        if depth == 0 and given is not None:
            self.anomaly = self.anomaly or torch.is_anomaly_enabled()
        return {
            "batch": int(given.shape[0]) if given is not None and given.dim() else None,
            "input_shape": list(given.shape) if given is not None else None,
            "output_requires_grad": bool(made is not None and made.requires_grad),
            "dtype": str(made.dtype).removeprefix("torch.") if made is not None else None,
            "grad_enabled": torch.is_grad_enabled(),
            "output_width": int(made.shape[-1]) if made is not None and made.dim() else None,
        }


class Networks:
    """The looks at one process's networks, one after the other, driven by its optimizer steps."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._wanted = True
        self._num_steps = 0
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._look: _Look | None = None
        self._evaluating: _Look | None = None
        self._trigger: hooks.Hook | None = None
        self._repeats: dict[int, tuple[str, Repeats]] = {}
        self._repeats_handle: Any = None
        self._rows: list[dict[str, Any]] = []
        self._kept: dict[tuple[str, str], list[dict[str, Any]]] = {}

    def stop(self, why: str | None = None) -> None:
        """Take all hooks away; what was seen stays."""
        self._wanted = False
        for look in (self._look, self._evaluating):
            if look is not None:
                look.end()
        if self._trigger is not None:
            self._trigger.undo()
        if self._repeats_handle is not None:
            self._repeats_handle.remove()
        self._look = self._evaluating = self._trigger = self._repeats_handle = None
        if why is not None:
            self._recorder.note(why)

    def safely(self, work: Callable[[], None]) -> None:
        """An error of ours ends the looking, not the script."""
        try:
            work()
        except Exception as error:
            self.stop(f"stopped looking at modules: {type(error).__name__}: {error}")

    def stepped(self, optimizer: Any) -> None:
        """After each optimizer step."""
        if not self._wanted:
            return
        self._num_steps += 1
        self._optimizers.add(optimizer)
        if self._num_steps in _KEPT_AT:
            self._look_for_graphs()
        if self._evaluating is not None:
            self._finish_evaluating(self._evaluating)
        if self._num_steps == _LOOK_AFTER:
            self._begin()
        elif self._look is not None and self._num_steps >= _LOOK_AFTER + _LOOK_FOR:
            self._finish(self._look)

    def _look_for_graphs(self) -> None:
        """The variable of a running user function whose graph grows from step to step, with the line that adds to it."""
        frames: dict[tuple[str, str], FrameType] = {}
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            if is_user_code(frame.f_code):
                for name, value in _variables(frame):
                    key = (frame.f_code.co_filename, name)
                    if key not in frames and (size := _graph_size(value)):
                        frames[key] = frame
                        self._kept.setdefault(key, []).append({"step": self._num_steps, "tensors": size})
            frame = frame.f_back
        grown = {key: self._kept[key][-1]["tensors"] - self._kept[key][0]["tensors"] for key in frames}
        most = max(grown.values(), default=0)
        if most >= _MANY:
            # what is made from a growing variable grows as well: the smallest is where it begins
            file, name = min((key for key in grown if grown[key] > most / 2), key=lambda key: self._kept[key][-1]["tensors"])
            holder = {"name": name, "file": file, "line": _line_that_adds(frames[file, name], name)}
            self._recorder.fact("kept_graphs", [{**look, "holder": holder} for look in self._kept[file, name]])

    def _begin(self) -> None:
        torch = sys.modules["torch"]
        self._recorder.fact("default_dtype", str(torch.get_default_dtype()).removeprefix("torch."))
        dynamo: Any = sys.modules.get("torch._dynamo.utils")
        if dynamo is not None and dynamo.counters.get("frames"):
            self._recorder.note("the network is compiled: its modules are not told apart")
            return
        self._look = _Look(self.safely, lambda root: not self._evaluates(root))
        self._look.begin()

    def _finish(self, look: _Look) -> None:
        self._look = None
        look.end()
        self._recorder.fact("anomaly", look.anomaly)
        parts = look.rows()
        self._rows += self._described(look, passes=_LOOK_FOR, in_evaluation=False)
        self._watch_repeats(parts)
        self._trigger = self._evaluation_trigger()

    def _evaluates(self, root: Any) -> bool:
        """Whether a network is called to be judged: the loop evaluates, or the network was switched over though it is trained."""
        if self._recorder.phase == "evaluate":
            return True
        return not root.training and not self._trained.isdisjoint(id(parameter) for parameter in root.parameters())

    @property
    def _trained(self) -> set[int]:
        groups = [group for optimizer in list(self._optimizers) for group in getattr(optimizer, "param_groups", ())]
        return {id(one) for group in groups for one in group["params"]}

    def _described(self, look: _Look, *, passes: int, in_evaluation: bool) -> list[dict[str, Any]]:
        trained = self._trained
        return [{**part.to_dict(passes, trained), "in_evaluation": in_evaluation} for part in look.rows()]

    def _watch_repeats(self, parts: list[_Part]) -> None:
        """The outermost parts that have parameters, none of them trained: inputs that come again could be worked out once."""
        from torch.nn.modules import module

        rows = zip(parts, self._rows, strict=True)
        untrained = [part for part, facts in rows if facts["num_params"] and not facts["num_in_optimizer"]]
        inner = {id(one) for part in untrained for one in part.module.modules() if one is not part.module}
        self._repeats = {id(part.module): (part.name, Repeats()) for part in untrained if id(part.module) not in inner}
        if self._repeats:
            self._repeats_handle = module.register_module_forward_hook(self._saw, with_kwargs=True)

    def _saw(self, module: Any, args: Any, options: Any, _: Any) -> None:
        watched = self._repeats.get(id(module))
        if watched is not None and self._recorder.phase != "evaluate":
            self.safely(lambda: self._compare(watched[1], next(tensors_in((args, options)), None)))

    def _compare(self, repeats: Repeats, given: Any) -> None:
        if given is None:
            return
        if given.is_cpu:
            repeats.add(given)
        else:
            self._recorder.note("inputs on the device were not compared: whether they come again is not known")
        if (not given.is_cpu or all(found.is_done for _, found in self._repeats.values())) and self._repeats_handle is not None:
            self._repeats_handle.remove()
            self._repeats_handle = None

    def _evaluation_trigger(self) -> hooks.Hook | None:
        """The next batch that is evaluated begins the second look."""
        loading: Any = sys.modules.get("torch.utils.data.dataloader")
        if loading is None:
            return None

        def make(original: Function) -> Function:
            def next_batch(iterator: Any) -> Any:
                batch = original(iterator)
                self.safely(self._batch_came)
                return batch

            return next_batch

        return hooks.replace(loading._BaseDataLoaderIter, "__next__", make)

    def _batch_came(self) -> None:
        evaluates = self._recorder.phase == "evaluate"
        if self._evaluating is None:
            if evaluates and self._trigger is not None:
                self._evaluating = _Look(self.safely, self._evaluates)
                self._evaluating.begin()
        elif not evaluates or self._evaluating.roots >= _EVALUATED_CALLS:
            self._finish_evaluating(self._evaluating)

    def _finish_evaluating(self, look: _Look) -> None:
        """A look that met no network is tried again with the next batches."""
        look.end()
        rows = self._evaluated(look)
        self._evaluating = None
        self._rows += rows
        if rows and self._trigger is not None:
            self._trigger.undo()
            self._trigger = None

    def _evaluated(self, look: _Look | None) -> list[dict[str, Any]]:
        return self._described(look, passes=look.roots, in_evaluation=True) if look is not None and look.roots else []

    def to_list(self) -> list[dict[str, Any]]:
        """The rows so far; a look that is still going on, as when the script ends with an evaluation, is in them."""
        rows = [*self._rows, *self._evaluated(self._evaluating)]
        repeats = {name: found.to_dict() for name, found in list(self._repeats.values())}
        return [row if row["in_evaluation"] else {**row, **repeats.get(row["name"], {})} for row in rows]

    def forget(self) -> None:
        """In a forked child, which trains nothing: no hooks, no rows."""
        self.stop()
        self._rows, self._repeats = [], {}


def install(recorder: Recorder) -> None:
    """Wait for torch's optimizers; their steps drive everything else."""
    networks = Networks(recorder)
    recorder.register("modules", networks.to_list)
    recorder.after_fork(networks.forget)

    def watch_steps() -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(lambda optimizer, *_: networks.safely(partial(networks.stepped, optimizer)))

    hooks.when_imported("torch.optim.optimizer", watch_steps)


def _zero_share(tensors: Iterable[Any]) -> float | None:
    """The share of zeros in the largest matrix on the CPU, by some of its values; None where none is large."""
    matrices = [one for one in tensors if one.dim() == 2 and one.is_cpu and one.layout is sys.modules["torch"].strided]
    largest = max(matrices, key=lambda one: one.numel(), default=None)
    if largest is None or largest.numel() < _LARGE_MATRIX:
        return None
    seen = largest.detach()[:: max(1, largest.shape[0] // _VALUES), 1 :: max(1, largest.shape[1] // _VALUES)]  # no diagonal
    return int((seen == 0).sum()) / int(seen.numel())


def _num_values(parameters: Iterable[Any]) -> int:
    return sum(parameter.numel() for parameter in parameters)


def tensors_in(values: Any, depth: int = 4) -> Iterator[Any]:
    """The tensors of a batch, of arguments or of results, in order; containers are opened down to `depth`."""
    if isinstance(values, sys.modules["torch"].Tensor):
        yield values
    elif depth and isinstance(values, Mapping | list | tuple):
        for value in values.values() if isinstance(values, Mapping) else values:
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
        if inputs.dim() < 2 or not inputs.is_cpu or not inputs.numel():
            return
        flat = _flat(inputs.detach())
        stride = max(1, flat.shape[1] // _VALUES)
        values = flat[:, ::stride][:, :_VALUES].float().contiguous()
        for row in sys.modules["torch"]._C.TensorBase.numpy(values):  # the method itself: our reading is not the script's
            sample = hash(row.tobytes())
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
        return {"repeated_inputs_share": self.repeated / max(1, self._since) if self.seen else None}


def _flat(inputs: Any) -> Any:
    """The samples as rows, without copying where the layout allows it."""
    if inputs.dim() == 4 and not inputs.is_contiguous():
        by_channel = inputs.permute(0, 2, 3, 1)
        inputs = by_channel if by_channel.is_contiguous() else inputs[:, :1]
    return inputs.reshape(inputs.shape[0], -1)


def _graph_size(value: Any) -> int:
    """How many operations of autograd a tensor holds on to; of a list, how many of its elements hold some."""
    if isinstance(value, list | deque):
        firsts = (one[0] if isinstance(one, tuple) and one else one for one in value)
        return sum(1 for one in firsts if getattr(one, "grad_fn", None) is not None)
    if not isinstance(value, sys.modules["torch"].Tensor) or value.grad_fn is None:
        return 0
    seen, todo = {value.grad_fn}, [value.grad_fn]
    while todo and len(seen) < _MAX_GRAPH:
        todo += (new := {node for node, _ in todo.pop().next_functions if node is not None} - seen)
        seen |= new
    return len(seen)


def _variables(frame: FrameType) -> Iterator[tuple[str, Any]]:
    """Local variables, what dictionaries among them hold, and the attributes of objects of the user's own classes."""
    for name, value in list(frame.f_locals.items()):
        yield name, value
        if isinstance(value, dict) and value is not frame.f_locals:
            yield from ((f"{name}[{key!r}]", inner) for key, inner in list(value.items()))
        elif hasattr(value, "__dict__") and not isinstance(value, type | ModuleType):
            yield from ((f"{name}.{attribute}", inner) for attribute, inner in list(vars(value).items()))


def _line_that_adds(frame: FrameType, name: str) -> int:
    """The first line of the function that makes the variable from itself; where none is found, the line that runs."""
    named = rf"(?<![\w.]){re.escape(name)}".replace("'", "['\"]")
    adds = re.compile(rf"{named}(\.append|\.extend|\.insert|\s*\+=|\b[^=]*=[^=].*{named}(?![\w=]|\s*=[^=]))")
    lines = [line for _, _, line in frame.f_code.co_lines() if line]
    for line in range(min(lines), max(lines) + 1):
        if adds.search(linecache.getline(frame.f_code.co_filename, line)):
            return line
    return frame.f_lineno
