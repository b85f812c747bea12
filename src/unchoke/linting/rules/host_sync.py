"""The host waits for the device on every step.

Work on a GPU is queued: the CPU hands over a step and goes on to prepare the next. `.item()`, `.cpu()`, `.numpy()`,
`.tolist()`, `float(loss)`, `if torch.isnan(loss)`, `assert mask.max() <= 1` or `torch.cuda.synchronize()` break
that: the CPU stops until everything queued so far is done, and the device then idles while the next step is prepared. Once a
step it costs the overlap; inside a loop over samples or classes it costs a round trip each time. `torch.cuda.empty_cache()`
waits too, and gives memory back that the next step asks for again.

**Write instead.** Add up on the device and read once, after the loop:

    total = torch.zeros((), device=device)
    for x, y in loader:
        ...
        total += loss.detach()
    print(total.item() / len(loader))

Print or log now and then: `if step % 50 == 0: print(loss.item())`. Lightning: `self.log("loss", loss)` takes the tensor. Keras:
`metric.update_state(loss)` in the step and `metric.result()` after the epoch.

**When this is fine.** On the CPU, where there is nothing to wait for: a file whose device is plainly the CPU is not reported.
Nor is evaluation, code under `if step % n == 0`, what only runs when something went wrong (the body of `if not
torch.isfinite(loss): … break`; the question itself waits), and a wait in a loop that takes the time. A second wait with no work
handed over since the first costs nothing.

Always a nit: whether a wait is noticed hangs on what else the step waits for, which a file does not tell (`unchoke profile`
does). Device: CUDA, MPS. Measured on a script that reads 3,074 numbers back in each step, on a CPU, where only the calls
themselves cost: 4.1 s became 0.9 s. A single read a step costs far less.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.facts.devices import CPU, CUDA, runs_on_cpu
from unchoke.code.facts.loops import Loop, unwrapped
from unchoke.code.facts.tensor_facts import DEVICE, HOST, Tensors
from unchoke.code.facts.vocabulary import words
from unchoke.code.node_index import FunctionNode, arguments
from unchoke.code.program import Program
from unchoke.linting.questions import rounds_of, tests_round
from unchoke.linting.rule import Hit, Rule, line_of, shortened

RULE = Rule(
    group="device",
    stage="step",
    title="the host waits for the device on every step",
    kind="nit",
    gain="up to 79 % of a script that reads thousands of numbers back a step; far less for one",
    claim="Planted chokes",
    command="unchoke profile -- python SCRIPT",
    devices=("cuda", "mps"),
)
_SURE = frozenset({"item", CPU})  # a tensor's own, whatever it is called on
_IF_TENSOR = frozenset({"numpy", "tolist"})
_NUMBERS = frozenset({"float", "int"})
_WAITS = ("cuda.synchronize", "cuda.empty_cache", "mps.synchronize", "mps.empty_cache")
_CLOCKS = frozenset({"time", "perf_counter", "monotonic", "perf_counter_ns", "elapsed_time", "Event", "default_timer", "timeit"})
_NUMBER = frozenset({"loss", "losses", "cost", "acc", "accuracy", "mean", "reduce", "result", "metric"})
_TROUBLE = frozenset({"isnan", "isfinite", "isinf"})


def check(program: Program) -> Iterator[Hit]:
    loops = [loop for loop in program.facts.training_loops if loop.kind != "batch"]
    # TensorFlow takes a GPU by itself, and Lightning's device is the trainer's: silence says nothing there.
    if not loops or (all(loop.kind == "torch" for loop in loops) and runs_on_cpu(program)):
        return
    tensors = Tensors(program)
    found: dict[tuple[int | None, int], tuple[ast.AST, str, Loop]] = {}
    for node in program.nodes(ast.Call, ast.If, ast.Assert, ast.While):
        shown = _sync(program, tensors, node)
        loop = _each_step(program, node) if shown else None
        if loop is not None:
            place = program.place(node)
            found.setdefault((place.cell, place.line), (node, shown, loop))
    for at, shown, loop in found.values():
        yield Hit(
            at,
            f"`{shown}` waits for the device on every step of {_named(program, loop, at)}",
            evidence={"call": shown, "loop line": program.line(loop.node)},
            fix=_fix(program, at, loop),
        )


def _is_inner(program: Program, node: ast.AST, loop: Loop) -> bool:
    """A round trip for each sample or class, not for each of the few names in a table of losses."""
    rounds = [above for above in rounds_of(program, node) if above is not loop.node and not program.index.holds(above, loop.node)]
    inner = (
        above for above in rounds if isinstance(above, ast.For) or program.index.holds(loop.node, above)
    )  # not `for k in top`
    return any(program.method(unwrapped(program, above.iter)) not in ("items", "values") for above in inner)


def _sync(program: Program, tensors: Tensors, node: ast.AST) -> str:
    """What makes the host wait here, as written; empty if nothing does."""
    if isinstance(node, ast.If | ast.Assert | ast.While):
        return _asked(program, tensors, node.test)
    return _call_sync(program, tensors, node) if isinstance(node, ast.Call) else ""


def _asked(program: Program, tensors: Tensors, test: ast.expr) -> str:
    """A tensor whose truth Python asks for: `if torch.isnan(loss)`, `assert y.max() < 10`."""
    parts = test.values if isinstance(test, ast.BoolOp) else [test.operand] if isinstance(test, ast.UnaryOp) else []
    if parts:
        return next((shown for part in parts if (shown := _asked(program, tensors, part))), "")
    sure = isinstance(test, ast.Call | ast.Compare) and tensors.where(test) == DEVICE and not program.facts.is_conditional(test)
    return shortened(program, test) if sure else ""


def _call_sync(program: Program, tensors: Tensors, call: ast.Call) -> str:
    func, name = call.func, program.name(call)
    if name.endswith(_WAITS):
        return shortened(program, call)
    if name in _NUMBERS:
        return shortened(program, call) if call.args and tensors.where(call.args[0]) == DEVICE else ""
    if not isinstance(func, ast.Attribute) or not name.startswith("?."):
        return ""
    if arguments(call) or func.attr not in _SURE | _IF_TENSOR:
        return ""
    where = tensors.where(func.value)
    return shortened(program, call) if where == DEVICE or (func.attr in _SURE and where != HOST) else ""


def _each_step(program: Program, node: ast.AST) -> Loop | None:
    """The training loop on whose every step this runs; in a `tf.function` Python only runs while it is traced."""
    loop, function = program.facts.in_training(node), program.enclosing_function(node)
    if loop is None or loop.kind == "batch" or _is_trouble(program, node):
        return None
    inner = (above for above in program.loops_around(node) if above is not loop.node and program.index.holds(loop.node, above))
    if any(program.facts.is_conditional(item) for item in (node, *inner)):
        return None
    traced = function is not None and any(program.name(mark) == "tf.function" for mark in function.decorator_list)
    waits = isinstance(node, ast.Call) and program.name(node).endswith("synchronize")
    timed = waits and any(program.method(call) in _CLOCKS for call in program.within(loop.node, ast.Call))
    return None if traced or timed else loop


def _is_trouble(program: Program, node: ast.AST) -> bool:
    """Only when something went wrong: under `except`, in a `raise`, behind a test for NaN; or only where there is no card."""
    above = list(program.ancestors(node))
    others = (item.test for item in above if isinstance(item, ast.If) and program.index.holds_any(item.orelse, node))
    failed = any(isinstance(item, ast.ExceptHandler | ast.Raise) for item in above)
    asked = any(program.method(call) in _TROUBLE for call in program.calls_in(tests_round(program, node)))
    return failed or asked or any(CUDA in program.text(test) for test in others)


def _named(program: Program, loop: Loop, node: ast.AST) -> str:
    line = line_of(program, loop.node, seen_from=node)
    return f"training (`{loop.node.name}`, {line})" if isinstance(loop.node, FunctionNode) else f"the training loop ({line})"


def _fix(program: Program, node: ast.AST, loop: Loop) -> str:
    """With the author's own names where a sum is kept."""
    statement = program.statement(node)
    if isinstance(node, ast.Call) and program.name(node).endswith(_WAITS):
        return "leave it out of the loop: timings need one wait at the end, and memory is used again without it"
    if loop.kind == "lightning":
        return 'hand the tensor over: `self.log("name", tensor.detach())`, and keep sums as tensors'
    if isinstance(statement, ast.AugAssign) and loop.kind == "torch":
        summed = program.text(statement).replace(".item()", ".detach()").replace(".cpu()", ".detach()")
        return f"keep the sum on the device, `{summed}`, and read `{program.text(statement.target)}.item()` once after the loop"
    if _is_inner(program, node, loop):
        return "work it out for the whole batch at once, and read that back once a step instead of once a round"
    if loop.kind == "tape" and (not isinstance(node, ast.Call) or _NUMBER & set(words(program.text(node)))):
        return "put it into a `tf.keras.metrics.Mean()` with `update_state`, and read `result()` once after the loop"
    if loop.kind == "tape":
        return "keep the tensors and read them once after the loop, or only now and then"
    return "keep the tensor (`.detach()`) and read it once after the loop, or only on every 50th step: `if step % 50 == 0:`"
