"""A debugging mode left on for training.

`torch.autograd.set_detect_anomaly(True)` records a Python traceback for every operation of the forward pass and looks for NaN in
every gradient of the backward pass. `tf.debugging.enable_check_numerics()` puts a check behind every operation, and
`run_eagerly=True` or `tf.config.run_functions_eagerly(True)` throws away the compiled graph. Each finds a mistake once; left on,
each makes every later step pay for it. On a small recurrent network training took 3.9 s with anomaly detection and 1.0 s without.

**Write instead.** Take the line out when the NaN is found, or put it behind a switch that is off:

    torch.autograd.set_detect_anomaly(args.debug)

    with torch.autograd.detect_anomaly():      # one batch, where the mistake was
        loss = step(batch)

**When this is fine.** Under `if debug`, round a single batch, or switched off again before training begins. A model that cannot
be traced (Python code that depends on values) needs `run_eagerly=True` for that model; say so with `# noqa: anomaly-mode`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.facts.loops import step_kind
from unchoke.code.node_index import FunctionNode
from unchoke.code.nodes import is_main_test
from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    code="anomaly-mode",
    group="compute",
    stage="step",
    title="debugging mode left on for training",
    gain="3.9 to 1.0 s for a small recurrent network in PyTorch (machine A); TensorFlow's modes are unmeasured",
    claim="Planted chokes",
    command="unchoke profile",
)
_TORCH = frozenset(
    {"torch.autograd.set_detect_anomaly", "torch.autograd.anomaly_mode.set_detect_anomaly", "torch.set_anomaly_enabled"}
)
_BLOCKS = frozenset({"torch.autograd.detect_anomaly", "torch.autograd.anomaly_mode.detect_anomaly"})
_CHECKS = "tf.debugging.enable_check_numerics"
_EAGER = frozenset({"tf.config.run_functions_eagerly", "tf.config.experimental_run_functions_eagerly"})
_WHAT = {
    "torch": "`{call}` records a traceback for every operation and checks every gradient, in every step",
    "checks": "`{call}` checks the numbers of every operation, in every step",
    "eager": "`{call}` runs the model operation by operation instead of as one compiled graph",
}
_FIX = {
    "torch": "take it out, or write `torch.autograd.set_detect_anomaly(debug)` with `debug` off by default",
    "checks": "take it out, or put it under `if debug:`; `keras.callbacks.TerminateOnNaN()` costs next to nothing",
    "eager": "take it out: `compile` and `tf.function` run as a graph by default; turn it on only while debugging",
}


def check(program: Program) -> Iterator[Hit]:
    for node, kind, shown in _switches(program):
        if _is_sure(program, node) and not _is_taken_back(program, node, kind) and not _is_offered(program, node):
            yield Hit(node, _WHAT[kind].format(call=shown), evidence={"call": shown}, fix=_FIX[kind])


def _is_offered(program: Program, node: ast.AST) -> bool:
    """In the `__enter__` of a block that somebody else may open."""
    function = program.enclosing_function(node)
    return function is not None and function.name == "__enter__"


def _switches(program: Program) -> Iterator[tuple[ast.AST, str, str]]:
    """Everything that turns such a mode on: its node, its kind and how it is written."""
    for call in program.nodes(ast.Call):
        name = program.name(call)
        if name in _TORCH and program.value(program.argument(call, "mode", 0)) is True:
            if not _is_block(program, call) or _trains(program, call):
                yield call, "torch", f"{program.text(call.func)}(True)"
        elif name in _BLOCKS and _is_block(program, call) and _trains(program, call):
            yield call, "torch", program.text(call.func)
        elif name == _CHECKS:
            yield call, "checks", program.text(call.func)
        elif name in _EAGER and program.value(program.argument(call, "run_eagerly", 0)) is True:
            yield call, "eager", f"{program.text(call.func)}(True)"
        else:
            yield from _options(program, call)
    for node in program.nodes(ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Attribute) and target.attr == "run_eagerly" and program.value(node.value) is True:
                yield node, "eager", f"{program.text(target)} = True"


def _options(program: Program, call: ast.Call) -> Iterator[tuple[ast.AST, str, str]]:
    """`model.compile(run_eagerly=True)` and Lightning's `Trainer(detect_anomaly=True)`."""
    method = program.method(call)
    for option, owner, kind in (("run_eagerly", "compile", "eager"), ("detect_anomaly", "Trainer", "torch")):
        keyword = program.keyword(call, option) if method == owner else None
        if keyword is not None and program.value(keyword.value) is True:
            yield keyword.value, kind, f"{option}=True"


def _is_block(program: Program, call: ast.Call) -> bool:
    """Is it the head of a `with`, or a decorator, and so on for a stretch of code only?"""
    parent = program.parent(call)
    if isinstance(parent, ast.withitem):
        return True
    return isinstance(parent, FunctionNode) and call in parent.decorator_list


def _trains(program: Program, call: ast.Call) -> bool:
    """Does the code for which it is on train in a loop: round it, in it, or in what it calls?"""
    parent = program.parent(call)
    block = program.parent(parent) if isinstance(parent, ast.withitem) else parent
    if block is None or (program.facts.in_training(call) is not None and program.facts.is_conditional(block)):
        return False
    if program.facts.in_training(call) is not None:
        return True
    functions = {*program.reach(block), *((block,) if isinstance(block, ast.FunctionDef) else ())}
    for loop in program.facts.training_loops:
        if program.index.holds(block, loop.node) or program.enclosing_function(loop.node) in functions or loop.node in functions:
            return True
    return any(_fits(program, inner) for inner in program.within(block, ast.Call))


def _fits(program: Program, call: ast.Call) -> bool:
    """Training by one call, also of a function that is not in this file."""
    if any(fit.call is call for fit in program.facts.fits):
        return True
    method = program.method(call)
    named = (method.startswith("train") and method not in ("train", "training_step")) or method in ("fit", "train_on_batch")
    return named and step_kind(program, call) is None and program.function_of(call) is None


def _is_sure(program: Program, node: ast.AST) -> bool:
    """Is it on whenever the program runs: under no condition, or one that is known to hold or asks for a device?"""
    inner = node
    for above in program.ancestors(node):
        if isinstance(above, ast.If) and not is_main_test(above.test) and inner is not above.test:
            holds = program.value(above.test)
            wanted = program.index.holds_any(above.body, node)
            if "is_available" not in program.text(above.test) and holds is not wanted:
                return False
        inner = above
    return True


def _is_taken_back(program: Program, node: ast.AST, kind: str) -> bool:
    """Switched off again before any training."""
    after = [call for call in program.nodes(ast.Call) if program.is_before(node, call) and _switches_off(program, call, kind)]
    if not after or (isinstance(node, ast.Call) and _is_block(program, node)):
        return False
    first, last = program.index.number[node], program.index.number[after[0]]
    if program.enclosing_function(node) is not program.enclosing_function(after[0]):
        return False
    marks = [loop.node for loop in program.facts.training_loops] + [fit.call for fit in program.facts.fits]
    return not any(first < program.index.number[mark] < last for mark in marks)


def _switches_off(program: Program, call: ast.Call, kind: str) -> bool:
    name = program.name(call)
    if kind == "torch":
        return name in _TORCH and program.value(program.argument(call, "mode", 0)) is False
    if kind == "checks":
        return name == "tf.debugging.disable_check_numerics"
    return name in _EAGER and program.value(program.argument(call, "run_eagerly", 0)) is False
