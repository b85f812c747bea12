"""Code that evaluates, and whether gradients are off there.

Evaluation is a function whose name says so, Lightning's validation steps, what follows `model.eval()` in the same block up to
`model.train()`, or a loop over a loader called for validation in a function that trains nothing. PyTorch's gradient
switches (`no_grad`, `inference_mode`, `set_grad_enabled(False)`) are read as blocks, decorators and plain calls.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from unchoke.code.constant_values import Values
from unchoke.code.facts.loops import step_kind, unwrapped
from unchoke.code.facts.vocabulary import is_evaluating_name, role_of
from unchoke.code.node_index import FunctionNode, remembered

_KNOWN_MARKS = ("torch.", "tf.", "functools.", "abc.", "typing.", "contextlib.", "numba.", "jax.", "click.", "hydra.", "pytest.")
_PLAIN_MARKS = frozenset({"staticmethod", "classmethod", "property", "setter", "cached_property", "override", "jit", "njit"})
_HOOKS = frozenset(
    {"validation_step", "test_step", "predict_step", "on_validation_epoch_end", "on_test_epoch_end", "validation_epoch_end"}
)


@dataclass(frozen=True, eq=False)
class EvaluationCode:
    """`node` is the function, or the first statement after `model.eval()` or of a loop; `no_grad`: are gradients off in it?"""

    node: ast.AST
    kind: Literal["function", "lightning", "mode"]
    no_grad: bool
    first: int
    last: int
    model: str = ""
    scope: ast.AST | None = None


def evaluations(program: Values) -> list[EvaluationCode]:
    """All evaluation code of the program, in order."""
    found = [*_functions(program), *_after_eval(program)]
    found += _loops(program, found)
    return sorted(found, key=lambda item: item.first)


def _loops(program: Values, known: list[EvaluationCode]) -> list[EvaluationCode]:
    """Loops over a loader called for validation that run a network, in functions that train nothing and say no `eval()`."""
    owners = {program.written(program.receiver(call)) for call in program.calls_to("parameters", "zero_grad", "state_dict")}
    found = []
    for loop in program.nodes(ast.For):
        over = program.written(unwrapped(program, loop.iter)).rpartition(".")[2]
        first, last = program.index.number[loop.body[0]], program.index.stop(loop.body[-1])
        function = program.enclosing_function(loop)
        if function is None or role_of(over) != "eval" or any(item.first <= first <= item.last for item in known):
            continue
        calls = [call for part in loop.body for call in program.within(part, ast.Call)]
        run = [program.written(call.func) for call in calls if isinstance(call.func, ast.Name | ast.Attribute)]
        model = next((name for name in run if name and name in owners), "")
        if model and not any(step_kind(program, call) for call in program.within(function, ast.Call)):
            off = is_off_at(program, loop.body[0])
            found.append(EvaluationCode(loop.body[0], "mode", off, first, last, model, program.enclosing_scope(loop)))
    return found


def _functions(program: Values) -> Iterator[EvaluationCode]:
    for node in program.nodes(ast.FunctionDef, ast.AsyncFunctionDef):
        last = program.index.stop(node)
        if node.name in _HOOKS and isinstance(program.parent(node), ast.ClassDef):
            yield EvaluationCode(node, "lightning", True, program.index.number[node], last)
        elif is_evaluating_name(node.name) and not any(step_kind(program, call) for call in program.within(node, ast.Call)):
            yield EvaluationCode(node, "function", is_switched_off(program, node), program.index.number[node], last)


def _after_eval(program: Values) -> Iterator[EvaluationCode]:
    """The rest of the block after `model.eval()`; at the top of a notebook, of all cells that follow."""
    for call in program.calls_to("eval"):
        if not isinstance(call.func, ast.Attribute) or call.args or call.keywords:
            continue
        statement = program.parent(call)
        model = program.written(call.func.value)
        if isinstance(statement, ast.Expr) and model:
            following = list(_following(program, statement))
            end = next((place for place, item in enumerate(following) if _ends(program, item, model)), None)
            rest = following[:end]
            if rest:
                first, last = program.index.number[rest[0]], program.index.stop(rest[-1])
                off = all(is_off_at(program, item) for item in rest if not isinstance(item, ast.Pass))
                yield EvaluationCode(rest[0], "mode", off, first, last, model, program.enclosing_scope(statement))


def _following(program: Values, statement: ast.stmt) -> Iterator[ast.stmt]:
    parent, block = program.parent(statement), program.block_round(statement)
    yield from block[block.index(statement) + 1 :] if block else ()
    if isinstance(parent, ast.Module):
        number = program.index.number[parent]
        for module in program.nodes(ast.Module):
            if program.index.number[module] > number:
                yield from module.body


def _ends(program: Values, item: ast.stmt, model: str) -> bool:
    """Training begins again, or the name gets another model."""
    if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    for call in program.within(item, ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "train" and program.written(call.func.value) == model:
            return True
        if step_kind(program, call):
            return True
    return isinstance(item, ast.Assign) and any(program.written(target) == model for target in item.targets)


@remembered
def is_off_at(program: Values, node: ast.AST) -> bool:
    """Are gradients off where `node` runs: by a block round it, its function's decorator, a call before, or all its callers?"""
    return _is_off_round(program, node, 0) or _switched_before(program, node)


def _is_off_round(program: Values, node: ast.AST, depth: int) -> bool:
    for above in (node, *program.ancestors(node)):
        if isinstance(above, ast.With | ast.AsyncWith) and any(_is_switch(program, item.context_expr) for item in above.items):
            return True
        if isinstance(above, FunctionNode) and above is not node and is_switched_off(program, above, depth):
            return True
    return False


def is_switched_off(program: Values, function: FunctionNode, depth: int = 0) -> bool:
    """By decorator (one from elsewhere may do it), or because every call of it in the file is where gradients are off."""
    if any(_is_switch(program, mark) or _may_switch(program, mark) for mark in function.decorator_list):
        return True
    callers = program.callers(function) if depth <= 2 else []
    return bool(callers) and all(
        program.index.holds(function, call) or _is_off_round(program, call, depth + 1) for call in callers
    )


def _may_switch(program: Values, mark: ast.expr) -> bool:
    """A decorator that is not known and whose text is not here, or has a switch in it."""
    called = mark.func if isinstance(mark, ast.Call) else mark
    function = program.callable_of(called)
    if function is not None:
        return any(_is_switch(program, node) for node in program.within(function, ast.Call, ast.Attribute))
    return not program.name(called).startswith(_KNOWN_MARKS) and program.method(called) not in _PLAIN_MARKS


def _is_switch(program: Values, node: ast.expr) -> bool:
    name = program.name(node)
    given = program.value(program.argument(node, "mode", 0)) if isinstance(node, ast.Call) else None
    if name.endswith("set_grad_enabled"):
        return isinstance(node, ast.Call) and given is not True  # `phase == "train"` switches them off when it evaluates
    return name.rpartition(".")[2] in ("no_grad", "inference_mode") and given is not False


def _switched_before(program: Values, node: ast.AST) -> bool:
    """A plain `torch.set_grad_enabled(False)` earlier in the file, not taken back before this place."""
    state = True
    number = program.index.number[node]
    for call in program.calls_to("set_grad_enabled"):
        if program.index.number[call] > number:
            break
        if isinstance(program.parent(call), ast.Expr):
            state = program.value(program.argument(call, "mode", 0)) is not False
    return not state
