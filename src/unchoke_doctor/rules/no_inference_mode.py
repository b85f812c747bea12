"""Does evaluation or prediction in torch keep everything for a backward pass that never comes?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke_doctor.code.program import COMPREHENSIONS, FUNCTIONS, LOOPS, FunctionNode, Program
from unchoke_doctor.code.training import breaks_early, torch_passes, trains_in
from unchoke_doctor.fixes import decorate
from unchoke_doctor.rules import Case, Edit, Hit

_OFF = re.compile(r"no_grad|inference_mode|set_grad_enabled|grad_enabled|InferenceMode|smart_inference")
_NEEDS = re.compile(
    r"requires_grad_?\(?\)? ?=? ?True|requires_grad_\(\)|\.grad\b|autograd|retain_grad|backward_hook|[Gg]rad-?_?CAM|saliency"
    r"|_cam\b"
)
_EVALUATES = re.compile(r"val|eval|test|predict|infer|embed|extract|feature|submission|score", re.IGNORECASE)
_PHASE = re.compile(r"train|phase|mode|optimizer|is_val|split", re.IGNORECASE)


def check(case: Case) -> Iterator[Hit]:
    program, frozen = case.program, _frozen(case.program)
    units: dict[ast.AST, list[ast.Call]] = {}
    phases: dict[ast.AST, list[ast.Call]] = {}
    for call in torch_passes(program):
        off = program.text(call.func, 500) in frozen or _in_network(program, call) or _is_off(program, call)
        if off or not program.is_own(call):
            continue
        if (unit := _evaluation(program, call)) is not None:
            units.setdefault(unit, []).append(call)
        elif (loop := _loop_of_phases(program, call)) is not None:
            phases.setdefault(loop, []).append(call)
    for unit, calls in units.items():  # a single pass outside every loop, or a few, cost little
        loops = (program.loop(call) for call in (calls[0], *program.callers(unit)))
        again = any(loop is not None and not breaks_early(program, loop) for loop in loops)
        where, how, edits = "in this loop", "`with torch.inference_mode():` around the loop", tuple[Edit, ...]()
        if isinstance(unit, ast.FunctionDef):
            where, how = f"in `{unit.name}`", f"`@torch.inference_mode()` above `def {unit.name}`"
            if program.own.imports.get("torch") == "torch":
                edits = (decorate(program, unit, "@torch.inference_mode()"),)
        kept = "each pass keeps its activations for a backward pass that never comes"
        said = f"`{program.text(calls[0])}` {where} runs with gradients on: {kept}"
        fix = f"put {how} (or `torch.no_grad()`); `eval()` does not switch gradients off"
        yield case.hit(calls, said, fix, "choke" if again else "note", shown=edits)
    for loop, calls in phases.items():
        said = (
            f"`{program.text(calls[0])}` keeps gradients in validation too: the backward pass depends on the phase, "
            "`torch.set_grad_enabled` is not used"
        )
        fix = "write `with torch.set_grad_enabled(training):` around the forward pass, with the condition of the backward pass"
        yield case.hit(calls[:1], said, fix, loop_line=program.place(loop).line)


def _frozen(program: Program) -> set[str]:
    """Networks of which all weights are frozen, and none replaced after: no pass of them keeps anything."""
    found = set()
    for target, held in program.stored.get("requires_grad", ()):
        loop = next((part for part in program.above(target) if isinstance(part, (ast.For, *COMPREHENSIONS))), None)
        over = program.text(loop.iter, 500) if isinstance(loop, ast.For) else ""
        if isinstance(held, ast.Constant) and held.value is False and over.endswith(".parameters()"):
            found.add(over.removesuffix(".parameters()"))
    return found - {program.text(one.value, 500) for some in program.stored.values() for one, _ in some} if found else found


def _evaluation(program: Program, call: ast.Call) -> ast.AST | None:
    """The function or loop that evaluates: nothing in it trains, and nothing that runs it passes its result backward."""
    loops, function = _loops(program, call), program.function(call)
    around = function or (loops[-1] if loops else call)
    if (loops and trains_in(program, loops[0])) or _NEEDS.search(program.text(around, 20_000)):
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
        around = next(iter(_loops(program, caller)), None) or program.function(caller)
        if around is not None and trains_in(program, around):
            return True
        if isinstance(around, FUNCTIONS) and deepest and _feeds_training(program, around, deepest - 1):
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
    steps = [one for one in program.calls_in(loop) if program.last(one) == "backward"] if loop is not None else []
    for step in steps:
        inside = [part for part in program.above(step) if isinstance(part, ast.If) and loop and program.contains(loop, part)]
        if any(program.contains(part, call) for part in inside) or not any(
            _PHASE.search(program.text(one.test)) for one in inside
        ):
            return None
    return loop if steps else None


def _in_network(program: Program, call: ast.Call) -> bool:
    """Inside a network's own methods, or in Lightning's, which switches gradients off itself; in a unit test."""
    owner, function = program.class_of(call), program.function(call)
    bases = program.base_names(owner) if owner is not None else []
    if any(name.endswith(("Module", "Model", "Layer")) for name in bases) or (owner and program.method(owner, "forward")):
        return True
    return isinstance(function, ast.FunctionDef) and function.name.startswith("test_") and not program.callers(function)


def _is_off(program: Program, node: ast.AST, deepest: int = 3) -> bool:
    """Under `no_grad` and its kin: around it, over its function, or around every call of that."""
    function: ast.AST | None = None
    for part in program.above(node):
        marks: list[ast.expr] = getattr(part, "decorator_list", []) if isinstance(part, FUNCTIONS) else []
        if isinstance(part, ast.With | ast.AsyncWith):
            marks = [item.context_expr for item in part.items]
        if any(_OFF.search(program.text(mark, 200)) for mark in marks):
            return True
        function = function or (part if isinstance(part, FUNCTIONS) else None)
    for call in program.calls_to("set_grad_enabled", "inference_mode"):
        is_statement = isinstance(program.parents.get(call), ast.Expr) and program.function(call) in (None, function)
        if is_statement and program.text(call).endswith(("(False)", "(mode=False)")):
            return True
    callers = program.callers(function) if function is not None and deepest else []
    return bool(callers) and all(_is_off(program, call, deepest - 1) for call in callers)
