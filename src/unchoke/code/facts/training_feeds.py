"""What a training is fed with: from the argument of a `fit` back to the calls that made it, and what a sample costs there.

In comes a program, out go `Feed` records, one for each `fit` of Keras. Loaders of PyTorch are in `loaders`; this follows what
Keras is given (a `Sequence`, a generator, a flow of an `ImageDataGenerator`, a tf.data pipeline) and says how often.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from unchoke.code.facts.epochs import most
from unchoke.code.facts.loops import Fit
from unchoke.code.node_index import FunctionNode
from unchoke.code.program import Program

FLOWS = frozenset({"flow_from_directory", "flow_from_dataframe", "flow"})
DIRECTORY_SETS = frozenset({"image_dataset_from_directory"})


@dataclass(frozen=True, eq=False)
class Feed:
    """`given` is what the fit trains on, `made_of` the calls that it comes from, the nearest first."""

    fit: Fit
    given: ast.expr
    made_of: tuple[ast.Call, ...]


def keras_feeds(program: Program) -> list[Feed]:
    """Every Keras `fit` with what it is given."""
    found = []
    for fit in program.facts.fits:
        given = (program.argument(fit.call, "x", 0) or program.argument(fit.call, "generator")) if fit.kind == "keras" else None
        if given is not None:
            found.append(Feed(fit, given, tuple(program.made_of(given))))
    return found


def num_epochs(program: Program, fit: Fit) -> Any:
    """How many epochs a Keras `fit` runs, or UNKNOWN."""
    if isinstance(fit.num_epochs, int | float):
        return fit.num_epochs
    position = 2 if program.method(fit.call) == "fit_generator" else 3
    return most(program, program.argument(fit.call, "epochs", position))


def few(count: Any, *, below: int = 3) -> bool:
    """Fewer than that, as far as the file says."""
    return isinstance(count, int | float) and not isinstance(count, bool) and count < below


def item_functions(program: Program, owner: ast.ClassDef | None, depth: int = 0) -> Iterator[FunctionNode]:
    """What runs for a sample of this class: `__getitem__`, also of the data set that it takes its items from."""
    if owner is None or depth > 3:
        return
    methods = program.methods(owner)
    for name in ("__getitem__", "__iter__", "__data_generation", "_data_generation"):
        function = methods.get(name)
        if function is None:
            continue
        yield function
        for part in program.within(function, ast.Subscript):
            inner = program.assigned_class(part.value)
            if inner is not None and inner is not owner:
                yield from item_functions(program, inner, depth + 1)
