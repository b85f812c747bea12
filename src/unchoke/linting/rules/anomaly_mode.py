"""A debugging mode left on for training.

`torch.autograd.set_detect_anomaly(True)` records a Python traceback for every operation of the forward pass and looks for NaN in
every gradient of the backward pass. `tf.debugging.enable_check_numerics()` puts a check behind every operation, and
`run_eagerly=True` or `tf.config.run_functions_eagerly(True)` throws away the compiled graph. Each finds a mistake once; left on,
each makes every later step pay for it. On a small recurrent network training took 3.9 s with anomaly detection and 1.0 s without.

**Write instead.** Take the line out when the NaN is found, or put it behind a switch that is off:

    torch.autograd.set_detect_anomaly(args.debug)

    with torch.autograd.detect_anomaly():      # one batch, where the mistake was
        loss = step(batch)

**When this is fine.** Under `if debug`, round a single batch, or switched off again before training begins; a training of fewer
than 20 rounds makes it a nit. A model that cannot
be traced (Python code that depends on values) needs `run_eagerly=True` for that model; say so with `# noqa: anomaly-mode`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from unchoke.code.facts.epochs import few
from unchoke.code.node_index import FunctionNode
from unchoke.code.nodes import is_main_test
from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    group="compute",
    stage="step",
    title="debugging mode left on for training",
    gain="3.9 to 1.0 s for a small recurrent network in PyTorch (machine A); TensorFlow's modes are unmeasured",
    claim="Planted chokes",
    command="unchoke profile",
)
_SET = {
    "set_detect_anomaly": ("torch", "mode"),
    "set_anomaly_enabled": ("torch", "mode"),
    "run_functions_eagerly": ("eager", "run_eagerly"),
    "experimental_run_functions_eagerly": ("eager", "run_eagerly"),
}
_CHECKS = {"enable_check_numerics": True, "disable_check_numerics": False}
_OPTIONS = {"compile": ("run_eagerly", "eager"), "Trainer": ("detect_anomaly", "torch")}  # of Keras and of Lightning
_TRIAL = 20
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
        if _is_sure(program, node) and not _is_taken_back(program, node, kind):
            rounds = [loop.num_epochs for loop in program.facts.training_loops] + [fit.num_epochs for fit in program.facts.fits]
            trial = bool(rounds) and all(few(count, below=_TRIAL) for count in rounds)
            trial = trial or (shown.endswith("detect_anomaly") and not program.facts.optimizers)  # gradients are looked at
            says = _WHAT[kind].format(call=shown)
            yield Hit(node, says, evidence={"call": shown}, fix=_FIX[kind], kind="nit" if trial else None)


def _switches(program: Program) -> Iterator[tuple[ast.AST, str, str]]:
    """Everything that turns such a mode on: its node, its kind and how it is written."""
    for call in program.calls_to(*_SET, *_CHECKS, *_OPTIONS, "detect_anomaly"):
        kind, on = _set(program, call)
        text = program.text(call.func) if kind else ""
        if on is True and (_block(program, call) is None or _trains(program, call)):
            yield call, kind, text if kind == "checks" else f"{text}(True)"
        elif program.method(call) == "detect_anomaly" and _trains(program, call):
            yield call, "torch", program.text(call.func)
        elif program.method(call) in _OPTIONS:
            option, kind = _OPTIONS[program.method(call)]
            keyword = program.keyword(call, option)
            if keyword is not None and program.value(keyword.value) is True:
                yield keyword.value, kind, f"{option}=True"
    for node in program.nodes(ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Attribute) and target.attr == "run_eagerly" and program.value(node.value) is True:
                yield node, "eager", f"{program.text(target)} = True"


def _set(program: Program, call: ast.Call) -> tuple[str, Any]:
    """Which mode a call sets, and to what."""
    method = program.method(call)
    if method in _CHECKS:
        return "checks", _CHECKS[method]
    kind, option = _SET.get(method, ("", ""))
    return kind, program.value(program.argument(call, option, 0)) if kind else None


def _block(program: Program, call: ast.Call) -> ast.AST | None:
    """The `with` that it heads or the function that it decorates: it is on for that stretch of code only."""
    parent = program.parent(call)
    if isinstance(parent, ast.withitem):
        return program.parent(parent)
    return parent if isinstance(parent, FunctionNode) and call in parent.decorator_list else None


def _trains(program: Program, call: ast.Call) -> bool:
    """Does the code for which it is on train in a loop: round it, in it, or in what it calls?"""
    block = _block(program, call)
    if block is None:
        return False
    if program.facts.in_training(call) is not None:
        return not program.facts.is_conditional(block)
    functions = {block, *program.reach(block)}
    marks = [*(loop.node for loop in program.facts.training_loops), *(fit.call for fit in program.facts.fits)]
    return any(program.index.holds(function, mark) for function in functions for mark in marks)


def _is_sure(program: Program, node: ast.AST) -> bool:
    """Is it on whenever the program runs: under no condition, or one that is known to hold or asks for a device?"""
    function = program.enclosing_function(node)
    if function is not None and function.name == "__enter__":
        return False  # a block that somebody else may open
    tests = [above for above in program.ancestors(node) if isinstance(above, ast.If) and not is_main_test(above.test)]
    open_ = [above for above in tests if "is_available" not in program.text(above.test)]
    return all(program.value(above.test) is program.index.holds_any(above.body, node) for above in open_)


def _is_taken_back(program: Program, node: ast.AST, kind: str) -> bool:
    """Switched off again before any training."""
    later = (call for call in program.calls_to(*_SET, *_CHECKS) if program.is_before(node, call))
    off = next((call for call in later if _set(program, call) == (kind, False)), None)
    if off is None or program.enclosing_function(node) is not program.enclosing_function(off):
        owner = program.enclosing_class(node)
        return off is not None and owner is not None and owner is program.enclosing_class(off)
    marks = [loop.node for loop in program.facts.training_loops] + [fit.call for fit in program.facts.fits]
    return not any(program.is_before(node, mark) and program.is_before(mark, off) for mark in marks)
