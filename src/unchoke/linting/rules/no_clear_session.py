"""Keras networks built in a loop, and none of them let go.

Keras keeps a global state with the graphs and names of every network that was built in the process. In a loop over folds,
seeds or settings it grows with each round, and with it the memory of the host and often of the card: rounds become slower,
and a late one ends with an out-of-memory error, after hours.

**Write instead.** At the start of each round:

    for fold, (train, valid) in enumerate(folds.split(x, y)):
        keras.backend.clear_session()
        model = build()
        ...

Or one process for each round (`subprocess`, a job array), which gives everything back and can be repeated by itself.

**When this is fine.** Two or three small networks. Fewer than three rounds are not reported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.facts.loops import count_of
from unchoke.code.facts.vocabulary import words
from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    code="no-clear-session",
    group="compute",
    stage="step",
    title="Keras networks built in a loop and never let go",
    kind="risk",
    frameworks=("keras",),
)
_MAKERS = ("tf.keras.Sequential", "tf.keras.Model", "tf.keras.models.", "tf.keras.applications.")
_LETS_GO = frozenset({"clear_session", "Process", "run_in_process", "ProcessPoolExecutor"})
_BUILDS = frozenset({"build", "create", "make", "define", "construct", "new"})
_FEW = 3
_DEEPEST = 4


def check(program: Program) -> Iterator[Hit]:
    if any(program.method(call) in _LETS_GO for call in program.nodes(ast.Call)):
        return
    said: set[ast.AST] = set()
    for fit in program.facts.fits:
        loops = program.loops_around(fit.call) if fit.kind == "keras" else []
        for loop in loops:
            made = _made_inside(program, fit.call, loop)
            count = count_of(program, loop)
            if made is None or loop in said or (isinstance(count, int) and count < _FEW):
                continue
            said.add(loop)
            head = program.text(loop.iter) if isinstance(loop, ast.For) else "the loop"
            yield Hit(
                loop,
                f"`{program.text(made.func)}` builds another network in each round over `{head[:50]}`, and Keras keeps them all",
                {"loop line": program.line(loop)},
                "begin each round with `keras.backend.clear_session()`",
            )
            break


def _made_inside(program: Program, fit: ast.Call, loop: ast.AST) -> ast.Call | None:
    """The call in the loop's body that makes the network which is fitted, by what it does or is called."""
    node: ast.AST | None = program.receiver(fit)
    for _ in range(_DEEPEST):
        if isinstance(node, ast.Name | ast.Attribute):
            node = program.latest(node)
    if not isinstance(node, ast.Call) or not program.index.holds(loop, node):
        return None
    if program.name(node).startswith(_MAKERS):
        return None if program.method(node) == "clone_model" else node
    function = program.function_of(node)
    if function is None:
        return node if _BUILDS & set(words(program.method(node))) else None
    inner = [item for part in (function, *program.reach(function)) for item in program.within(part, ast.Call)]
    return node if any(program.name(item).startswith(_MAKERS) for item in inner) else None
