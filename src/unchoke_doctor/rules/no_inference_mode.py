"""Does evaluation or prediction in torch keep everything for a backward pass that never comes?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke_doctor.code.program import COMPREHENSIONS, FUNCTIONS, LOOPS, FunctionNode, Program
from unchoke_doctor.code.source import CodePlace
from unchoke_doctor.code.training import torch_passes, trains_in
from unchoke_doctor.rules import Case, Edit, Hit

_OFF = re.compile(r"no_grad|inference_mode|set_grad_enabled|grad_enabled|InferenceMode|smart_inference")
_NEEDS = re.compile(r"requires_grad_?\(?\)? ?=? ?True|requires_grad_\(\)|\.grad\b|autograd|retain_grad|backward_hook|[Gg]rad-?_?CAM|saliency")
_EVALUATES = re.compile(r"val|eval|test|predict|infer|embed|extract|feature|submission|score", re.IGNORECASE)
_PHASE = re.compile(r"train|phase|mode|optimizer|is_val|split", re.IGNORECASE)


def check(case: Case) -> Iterator[Hit]:
    program = case.program
    units: dict[ast.AST, list[ast.Call]] = {}
    phases: dict[ast.AST, list[ast.Call]] = {}
    for call in torch_passes(program):
        if not program.is_own(call) or _in_network(program, call) or _is_off(program, call) or _is_frozen(program, call):
            continue
        if (unit := _evaluation(program, call)) is not None:
            units.setdefault(unit, []).append(call)
        elif (loop := _loop_of_phases(program, call)) is not None:
            phases.setdefault(loop, []).append(call)
    for unit, calls in units.items():
        yield _hit(case, unit, calls)
    for loop, calls in phases.items():
        kind, basis, shown = case.weigh()
        said = f"`{program.text(calls[0])}` keeps gradients in validation too: the backward pass depends on the phase, `torch.set_grad_enabled` is not used"
        fix = "write `with torch.set_grad_enabled(training):` around the forward pass, with the condition of the backward pass"
        yield Hit(calls[0], said, fix, kind, basis, {**shown, "loop_line": program.place(loop).line})


def _hit(case: Case, unit: ast.AST, calls: list[ast.Call]) -> Hit:
    """At the forward pass; a single pass outside every loop costs little."""
    program, first = case.program, calls[0]
    function = unit if isinstance(unit, ast.FunctionDef) else None
    again = program.loop(first) is not None or any(program.loop(call) is not None for call in program.callers(function or unit))
    kind, basis, shown = case.weigh("choke" if again else "note")
    where = f"in `{function.name}`" if function is not None else "in this loop"
    how = f"`@torch.inference_mode()` above `def {function.name}`" if function is not None else "`with torch.inference_mode():` around the loop"
    edits: tuple[Edit, ...] = ()
    if function is not None and program.own.imports.get("torch") == "torch":
        place = program.place(function.decorator_list[0] if function.decorator_list else function)
        column = program.place(function).column
        at = CodePlace(place.cell, place.line, column, place.line, column)
        edits = (Edit(at, f"@torch.inference_mode()\n{' ' * column}"),)
    return Hit(
        first,
        f"`{program.text(first)}` {where} runs with gradients on: each pass keeps its activations for a backward pass that never comes",
        f"put {how} (or `torch.no_grad()`); `eval()` does not switch gradients off",
        kind, basis, shown, further=tuple(calls[1:]), shown=edits,
    )  # fmt: skip


def _evaluation(program: Program, call: ast.Call) -> ast.AST | None:
    """The function or loop that evaluates: nothing in it trains, and nothing that runs it passes its result backward."""
    loops = _loops(program, call)
    function = program.function(call)
    if (loops and trains_in(program, loops[0])) or _needs_gradients(program, function or (loops[-1] if loops else call)):
        return None
    if isinstance(function, ast.FunctionDef) and not trains_in(program, function):
        if not loops and _feeds_training(program, function):
            return None
        named = _EVALUATES.search(function.name) or any(program.name(one).endswith(".eval") for one in program.calls_in(function))
        looped = loops or any(_loops(program, caller) for caller in program.callers(function))
        return function if named or looped else None
    return next((loop for loop in reversed(loops) if not trains_in(program, loop)), None)


def _feeds_training(program: Program, function: FunctionNode, deepest: int = 2) -> bool:
    """Is a function with one forward pass called where a backward pass follows?"""
    for caller in program.callers(function):
        loops, around = _loops(program, caller), program.function(caller)
        if (loops and trains_in(program, loops[0])) or (not loops and around is not None and trains_in(program, around)):
            return True
        if not loops and around is not None and deepest and _feeds_training(program, around, deepest - 1):
            return True
    return False


def _loops(program: Program, node: ast.AST) -> list[ast.AST]:
    """The loops around a node in its function, from the inside out."""
    found: list[ast.AST] = []
    while (loop := program.loop(node)) is not None:
        found.append(loop)
        node = loop
    return found


def _loop_of_phases(program: Program, call: ast.Call) -> ast.AST | None:
    """A loop that trains or validates by a condition: `if phase == "train": loss.backward()`."""
    loop = next((one for one in _loops(program, call) if isinstance(one, LOOPS)), None)
    steps = [one for one in program.calls_in(loop) if isinstance(one.func, ast.Attribute) and one.func.attr == "backward"] if loop is not None else []
    if not steps or loop is None:
        return None
    for step in steps:
        tests = [part.test for part in program.above(step) if isinstance(part, ast.If) and program.contains(loop, part)]
        if not any(_PHASE.search(program.text(test)) for test in tests):
            return None
    inside = [part for part in program.above(call) if isinstance(part, ast.If) and program.contains(loop, part)]
    return loop if not any(program.contains(part, step) for part in inside for step in steps) else None


def _in_network(program: Program, call: ast.Call) -> bool:
    """Inside a network's own methods, or in Lightning's, which switches gradients off itself; in a unit test."""
    owner, function = program.class_of(call), program.function(call)
    if owner is not None and (program.method(owner, "forward") or any(name.endswith(("Module", "Model", "Layer")) for name in program.base_names(owner))):
        return True
    return isinstance(function, ast.FunctionDef) and function.name.startswith("test_") and not any(program.callers(function))


def _is_off(program: Program, node: ast.AST, deepest: int = 3) -> bool:
    """Under `no_grad` and its kin: around it, over its function, or around every call of that."""
    function: ast.AST | None = None
    for part in program.above(node):
        if isinstance(part, ast.With | ast.AsyncWith) and any(_OFF.search(program.text(item.context_expr, 200)) for item in part.items):
            return True
        if isinstance(part, FUNCTIONS):
            if any(_OFF.search(program.text(mark, 200)) for mark in getattr(part, "decorator_list", ())):
                return True
            function = function or part
    for call in program.calls_to("set_grad_enabled", "inference_mode"):
        is_statement = isinstance(program.parents.get(call), ast.Expr)
        if is_statement and program.function(call) in (None, function) and program.text(call).endswith(("(False)", "(mode=False)")):
            return True
    callers = program.callers(function) if function is not None and deepest else []
    return bool(callers) and all(_is_off(program, call, deepest - 1) for call in callers)


def _is_frozen(program: Program, call: ast.Call) -> bool:
    """Are all weights of the network frozen, and none replaced after? Then no pass keeps anything."""
    network = ast.dump(call.func)
    for target, given in program.stored.get("requires_grad", ()):
        loop = next((part for part in program.above(target) if isinstance(part, (ast.For, *COMPREHENSIONS))), None)
        off = isinstance(given, ast.Constant) and given.value is False and isinstance(loop, ast.For) and loop.iter
        if isinstance(off, ast.Call) and isinstance(off.func, ast.Attribute) and off.func.attr == "parameters" and ast.dump(off.func.value) == network:
            return not any(ast.dump(one.value) == network for some in program.stored.values() for one, _ in some)
    return False


def _needs_gradients(program: Program, block: ast.AST) -> bool:
    return bool(_NEEDS.search(program.text(block, 20_000)))
