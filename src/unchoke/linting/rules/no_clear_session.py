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

**When this is fine.** Two or three small networks. Fewer than three rounds are not reported, and where the file shows neither
folds nor five rounds it is a nit.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.facts.loops import count_of
from unchoke.code.facts.vocabulary import words
from unchoke.code.program import Program
from unchoke.linting.questions import calls_run_by
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    group="compute", stage="step", title="Keras networks built in a loop and never let go", kind="risk", frameworks=("keras",)
)
_MAKERS = ("tf.keras.Sequential", "tf.keras.Model", "tf.keras.models.", "tf.keras.applications.")
_LETS_GO = ("clear_session", "Process", "run_in_process", "ProcessPoolExecutor")
_BUILDS = frozenset({"build", "create", "make", "define", "construct", "new"})
_FEW = 3
_MANY = 5
_DEEPEST = 4


def check(program: Program) -> Iterator[Hit]:
    if program.calls_to(*_LETS_GO):
        return
    said: set[ast.AST] = set()
    for fit in program.facts.fits:
        for loop in program.loops_around(fit.call) if fit.kind == "keras" else ():
            made = _made_inside(program, fit.call, loop)
            count = count_of(program, loop)
            if made is None or loop in said or (isinstance(count, int) and count < _FEW):
                continue
            folds = isinstance(loop, ast.For) and any(map(_is_split, program.within(loop.iter, ast.Attribute)))
            said.add(loop)
            head = program.text(loop.iter) if isinstance(loop, ast.For) else "the loop"
            yield Hit(
                loop,
                f"`{program.text(made.func)}` builds another network in each round over `{head[:50]}`, and Keras keeps them all",
                {"loop line": program.line(loop)},
                "begin each round with `keras.backend.clear_session()`",
                kind=None if folds or (isinstance(count, int) and count >= _MANY) else "nit",
            )
            break


def _is_split(node: ast.Attribute) -> bool:
    return node.attr == "split"


def _made_inside(program: Program, fit: ast.Call, loop: ast.AST) -> ast.Call | None:
    """The call in the loop's body that makes the network which is fitted, by what it does or is called."""
    node = program.receiver(fit)
    for _ in range(_DEEPEST):
        node = program.latest(node) if isinstance(node, ast.Name | ast.Attribute) else node
    if not isinstance(node, ast.Call) or not program.index.holds(loop, node) or program.method(node) == "clone_model":
        return None
    function = program.function_of(node)
    named = function is None and bool(_BUILDS & set(words(program.method(node))))
    calls = [node] if function is None else calls_run_by(program, function)
    return node if named or any(program.name(call).startswith(_MAKERS) for call in calls) else None
