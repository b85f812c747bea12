"""A deep look at the network for a few steps: which parts run, how often, on what, and which of them are trained.

In: torch, once the script has imported it. After three optimizer steps every call of a module is timed for three steps, and
once more while evaluating; then the hooks are taken away. Out: `modules`, one row for each part, and facts about torch's
settings and about graphs that are kept: results of earlier steps that are still held together with what made them, and by which
variable. Parts that no optimizer trains are watched longer, for inputs that come again. Where
torch compiles the network it is left alone: a hook would have it compiled anew. On a device the times are those of the CPU
side. Hooks never stick to the user's own objects, which may be copied or saved.
"""

from __future__ import annotations

import gc
import linecache
import os
import re
import sys
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType, ModuleType
from typing import Any

from unchoke.chokes.watch import hooks
from unchoke.chokes.watch.hooks import Function
from unchoke.chokes.watch.module_calls import ModuleCalls, ModuleTimer, Repeats, first_tensor
from unchoke.chokes.watch.recorder import Recorder
from unchoke.chokes.watch.stacks import is_user_code

_LOOK_AFTER = 3
_LOOK_FOR = 3
_KEPT_AT = (8, 20, 40, 80)
_EVALUATED_CALLS = 8
_MAX_NODES = 5_000
_MAX_WALKED = 20
_MANY = 8
_ENVIRONMENT = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "LD_PRELOAD",
    "GLIBC_TUNABLES",
    "MALLOC_ARENA_MAX",
    "MALLOC_TRIM_THRESHOLD_",
)


class Modules:
    """The looks at one process's networks, one after the other, driven by its optimizer steps."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._wanted = True
        self._num_steps = 0
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._look: ModuleTimer | None = None
        self._evaluating: ModuleTimer | None = None
        self._trigger: hooks.Hook | None = None
        self._repeats: dict[int, tuple[str, Repeats]] = {}
        self._repeats_handle: Any = None
        self._rows: list[dict[str, Any]] = []
        self._kept: list[dict[str, Any]] = []

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

    @property
    def is_done(self) -> bool:
        """Whether steps tell nothing new: all looks at the training are over, and none at an evaluation is going on."""
        return self._num_steps > _KEPT_AT[-1] and self._look is None and self._evaluating is None

    def stepped(self, optimizer: Any) -> None:
        """After each optimizer step."""
        if not self._wanted:
            return
        self._num_steps += 1
        self._optimizers.add(optimizer)
        if self._num_steps in _KEPT_AT:
            self._kept.append(kept_graphs(self._num_steps))
            self._recorder.fact("kept_graphs", list(self._kept))
        if self._evaluating is not None:
            self._finish_evaluating(self._evaluating)
        if self._num_steps == _LOOK_AFTER:
            self._begin()
        elif self._look is not None and self._num_steps >= _LOOK_AFTER + _LOOK_FOR:
            self._finish(self._look)

    def _begin(self) -> None:
        for name, value in _settings().items():
            self._recorder.fact(name, value)
        if _compiles():
            self._recorder.note("the network is compiled: its modules are not told apart")
            return
        self._look = ModuleTimer(self.safely, lambda root: not self._evaluates(root))
        self._look.begin()

    def _finish(self, look: ModuleTimer) -> None:
        self._look = None
        look.end()
        self._recorder.fact("autocast", look.autocast or False)
        if look.anomaly:
            self._recorder.fact("anomaly", True)
        self._rows += self._described(look, parts=_LOOK_FOR, in_evaluation=False)
        self._watch_repeats(look.rows())
        self._trigger = self._evaluation_trigger()

    def _evaluates(self, root: Any) -> bool:
        """Whether a network is called to be judged: the loop evaluates, or the network was switched over though it is trained."""
        if self._recorder.phase == "evaluate":
            return True
        return not root.training and not self._trained.isdisjoint(id(parameter) for parameter in root.parameters())

    @property
    def _trained(self) -> set[int]:
        return {id(one) for optimizer in list(self._optimizers) for group in optimizer.param_groups for one in group["params"]}

    def _described(self, look: ModuleTimer, *, parts: int, in_evaluation: bool) -> list[dict[str, Any]]:
        trained = self._trained
        return [{**calls.to_dict(parts, trained), "in_evaluation": in_evaluation} for calls in look.rows()]

    def _watch_repeats(self, rows: list[ModuleCalls]) -> None:
        """The outermost parts that have parameters, none of them trained: inputs that come again could be worked out once."""
        from torch.nn.modules import module

        untrained = [
            row for row, facts in zip(rows, self._rows, strict=True) if facts["num_params"] and not facts["num_in_optimizer"]
        ]
        inner = {id(part) for row in untrained for part in row.module.modules() if part is not row.module}
        self._repeats = {id(row.module): (row.name, Repeats()) for row in untrained if id(row.module) not in inner}
        if self._repeats:
            self._repeats_handle = module.register_module_forward_hook(self._saw, with_kwargs=True)

    def _saw(self, module: Any, args: Any, options: Any, _: Any) -> None:
        watched = self._repeats.get(id(module))
        if watched is None or self._recorder.phase == "evaluate":
            return
        self.safely(lambda: self._compare(watched[1], first_tensor((args, options))))

    def _compare(self, repeats: Repeats, given: Any) -> None:
        if given is None:
            return
        if not given.is_cpu:
            self._recorder.note("inputs on the device were not compared: whether they come again is not known")
        else:
            repeats.add(given)
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
                self._evaluating = ModuleTimer(self.safely, self._evaluates)
                self._evaluating.begin()
        elif not evaluates or self._evaluating.roots >= _EVALUATED_CALLS:
            self._finish_evaluating(self._evaluating)

    def _finish_evaluating(self, look: ModuleTimer) -> None:
        """A look that met no network is tried again with the next batches."""
        look.end()
        rows = self._evaluated(look)
        self._evaluating = None
        self._rows += rows
        if rows and self._trigger is not None:
            self._trigger.undo()
            self._trigger = None

    def _evaluated(self, look: ModuleTimer | None) -> list[dict[str, Any]]:
        return self._described(look, parts=look.roots, in_evaluation=True) if look is not None and look.roots else []

    def to_list(self) -> list[dict[str, Any]]:
        """The rows so far; a look that is still going on, as when the script ends with an evaluation, is in them."""
        rows = [*self._rows, *self._evaluated(self._evaluating)]
        repeats = {name: found.to_dict() for name, found in list(self._repeats.values())}
        return [row if row["in_evaluation"] else {**row, **repeats.get(row["name"], {})} for row in rows]

    def forget(self) -> None:
        """In a forked child, which trains nothing: no hooks, no rows."""
        self.stop()
        self._rows, self._repeats = [], {}


def _compiles() -> bool:
    """Whether torch has compiled something in this process."""
    dynamo: Any = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters.get("frames"))


def _settings() -> dict[str, Any]:
    """Settings of torch and the environment that change how fast a step is."""
    import torch

    return {
        "anomaly": torch.is_anomaly_enabled(),
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "matmul_precision": torch.get_float32_matmul_precision(),
        "torch_threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "environment": {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
    }


def install(recorder: Recorder) -> None:
    """Wait for torch's optimizers; their steps drive everything else."""
    modules = Modules(recorder)
    recorder.register("modules", modules.to_list)
    recorder.after_fork(modules.forget)
    hooks.when_imported("torch.optim.optimizer", partial(_watch_steps, modules))


def _watch_steps(modules: Modules) -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    def after(optimizer: Any, *_: Any) -> None:
        if not modules.is_done:
            modules.safely(partial(modules.stepped, optimizer))

    register_optimizer_step_post_hook(after)


def kept_graphs(step: int) -> dict[str, Any]:
    """Tensors with a graph that are alive now, and the nodes that hang on them; `by` counts the operations that made them.

    Only young objects are looked at (what a few dozen steps have made), so that a look takes about a millisecond.
    """
    tensor_class = sys.modules["torch"].Tensor
    young = [found for generation in (0, 1) for found in gc.get_objects(generation=generation) if type(found) is tensor_class]
    tensors = [tensor for tensor in young if tensor.grad_fn is not None]
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
