"""Runs over epochs: which loops they are, how often they go round, which code they run. For rules about what a kill loses.

In comes a program, out go `Run` records, one for each loop over epochs that trains. Does not say what is saved: `saving` does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from unchoke.code.constant_values import UNKNOWN
from unchoke.code.facts.loops import count_of, is_range, unwrapped
from unchoke.code.facts.source_text import words
from unchoke.code.node_index import FunctionNode, LoopNode
from unchoke.code.program import Program
from unchoke.code.signatures import default_of, parameters

MIN_EPOCHS = 5
_NOT_EPOCHS = frozenset(
    {"fold", "folds", "split", "seed", "trial", "run", "lr", "rate", "param", "params", "config", "cfg", "name", "kind"}
)
_STEPS = frozenset({"step", "steps", "iter", "iteration", "iterations", "batch", "it", "update", "updates"})
_MEMORY = re.compile(
    r"(?:^|[._])(?:\w+_)?(?:feats?|features?)(?!\w*(?:extract|col|name|list))|embedding|bottleneck|latent", re.IGNORECASE
)
N = TypeVar("N", bound=ast.AST)


@dataclass(frozen=True, eq=False)
class Run:
    """`node` is the loop over epochs, `batches` the loop over batches, `functions` what the body calls in this file."""

    node: LoopNode
    batches: LoopNode | FunctionNode | None
    num_epochs: Any
    functions: tuple[FunctionNode, ...]


def epoch_runs(program: Program) -> list[Run]:
    """Every loop over epochs round training, once, in file order; also one that calls Keras' `fit` each time."""
    found: dict[ast.AST, Run] = {}
    for loop in program.facts.training_loops:
        if loop.epochs is not None and _is_over_epochs(program, loop.epochs, loop.node):
            found.setdefault(loop.epochs, _run(program, loop.epochs, loop.node))
    for fit in program.facts.fits:
        around = program.loops_around(fit.call) if fit.kind == "keras" else []
        for node in (loop for loop in around if _says_epoch(program, loop)):
            found.setdefault(node, _run(program, node, None))
    return sorted(found.values(), key=lambda run: program.index.number[run.node])


def _run(program: Program, node: LoopNode, batches: LoopNode | FunctionNode | None) -> Run:
    functions = {function for block in node.body for function in program.reach(block)}
    return Run(node, batches, num_epochs(program, node), tuple(sorted(functions, key=lambda item: program.index.number[item])))


def nodes_of(program: Program, run: Run, *types: type[N]) -> Iterator[N]:
    """All nodes of these types that run in each epoch: in the loop's body and in the functions it calls."""
    for block in (*run.node.body, *run.functions):
        yield from program.within(block, *types)


def num_epochs(program: Program, loop: LoopNode) -> Any:
    """How often the loop runs; where calls of its function differ, the most."""
    found = count_of(program, loop)
    if found is not UNKNOWN or not isinstance(loop, ast.For):
        return found
    inner = unwrapped(program, loop.iter)
    if not isinstance(inner, ast.Call) or not is_range(program, inner) or not inner.args:
        return UNKNOWN
    return most(program, inner.args[1] if len(inner.args) > 1 else inner.args[0])


def most(program: Program, node: ast.expr | None) -> Any:
    """A number; of a parameter the largest that any call or its default gives."""
    found = program.value(node)
    if isinstance(found, int | float) and not isinstance(found, bool):
        return found
    function = program.enclosing_function(node) if isinstance(node, ast.Name) else None
    if function is None or not isinstance(node, ast.Name) or node.id not in parameters(function):
        return UNKNOWN
    given = [program.calls.argument_for(call, function, node.id) for call in program.callers(function)]
    values = [program.value(item) for item in (*given, default_of(function, node.id)) if item is not None]
    numbers = [value for value in values if isinstance(value, int | float)]
    return max(numbers) if numbers else UNKNOWN


def is_long(count: Any) -> bool:
    """At least five epochs, as far as the file says."""
    return isinstance(count, int | float) and not isinstance(count, bool) and count >= MIN_EPOCHS


def trains_on_kept_features(program: Program, given: Iterable[ast.AST | None]) -> bool:
    """Does what is trained on come from features worked out before: by the names it has on its way here?"""
    return any(_MEMORY.search(text) for node in given if node is not None for text in _names_behind(program, node, 0))


def _names_behind(program: Program, node: ast.AST, depth: int) -> Iterator[str]:
    for part in program.within(node, ast.Name, ast.Attribute):
        name = program.written(part)
        yield name
        value = program.latest(part) if depth < 3 and name else None
        if value is not None and value is not node:
            yield from _names_behind(program, value, depth + 1)


def _is_over_epochs(program: Program, loop: LoopNode, batches: ast.AST) -> bool:
    """Not `for fold in …`, which runs whole trainings, nor `for step in range(…)`, which has no pass over data inside."""
    if _says_epoch(program, loop):
        return True
    if not isinstance(loop, ast.For) or loop is batches or (_NOT_EPOCHS | _STEPS) & set(_target_words(loop)):
        return False
    if not isinstance(batches, ast.For):
        return True
    inner = unwrapped(program, batches.iter)
    if is_range(program, inner):
        return (isinstance(inner, ast.Call) and len(inner.args) == 3) or "len(" in program.text(inner)
    return not isinstance(inner, ast.Tuple | ast.List)


def _says_epoch(program: Program, loop: LoopNode) -> bool:
    if not isinstance(loop, ast.For):
        return isinstance(loop, ast.While) and "epoch" in program.text(loop.test).lower()
    said = set(_target_words(loop))
    return bool(said & {"epoch", "epochs", "ep", "e"}) or (
        not said & (_NOT_EPOCHS | _STEPS) and "epoch" in program.text(loop.iter).lower()
    )


def _target_words(loop: ast.For) -> list[str]:
    return [word for node in ast.walk(loop.target) if isinstance(node, ast.Name) for word in words(node.id)]
