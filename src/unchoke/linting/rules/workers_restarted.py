"""Worker processes started anew in every epoch, or a loader made again in every round.

A DataLoader with workers starts them when it is iterated and ends them with the epoch, unless `persistent_workers=True`.
Starting costs tenths of a second where processes are forked and seconds where they import everything again (Windows, macOS,
`spawn`); with short epochs that is much of the time. A DataLoader made inside the loop over epochs or steps cannot keep them
at all, and makes its data set's index again each time.

**Write instead.** One loader, before the loop:

    loader = DataLoader(data, batch_size=64, shuffle=True, num_workers=4, persistent_workers=True)
    for epoch in range(epochs):
        for batch in loader:
            ...

**When this is fine.** Long epochs on Linux, where a start is lost among minutes: without `persistent_workers` alone it is a
nit, and so is a loader without workers. A loader for each fold, or for stages with another batch size, belongs where it is made.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.constant_values import UNKNOWN
from unchoke.code.facts.epochs import epoch_runs, is_long
from unchoke.code.facts.loaders import BatchSource
from unchoke.code.node_index import LoopNode, arguments, names_in
from unchoke.code.program import Program
from unchoke.linting.questions import torch_loaders
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    group="process", stage="load", title="loader or its workers made anew in every epoch", frameworks=("torch",), in_training=True
)


def check(program: Program) -> Iterator[Hit]:
    runs = [run for run in epoch_runs(program) if run.num_epochs is UNKNOWN or is_long(run.num_epochs)]
    rounds = {run.node for run in runs} | {loop.node for loop in program.facts.training_loops if isinstance(loop.node, ast.For)}
    said: set[ast.AST] = set()
    for loader in torch_loaders(program):
        maker = loader.maker or loader.call
        given = [word.arg for word in maker.keywords]
        function = program.enclosing_function(loader.call)
        uses = [use for use in program.callers(function) if not program.facts.is_conditional(use)] if function is not None else []
        around = (item for call in (loader.call, *uses) for item in program.loops_around(call))
        loop = next((item for item in around if item in rounds), None)
        if maker in said:
            continue
        if loop is not None and not _hangs_on(program, loader, loop):
            dataset = f"`{program.text(loader.dataset.func)}`" if isinstance(loader.dataset, ast.Call) else ""
            what = "its workers" if loader.has_workers else dataset
            if not what:
                continue  # next to nothing to make
            said.add(maker)
            head = f"for {program.text(loop.target)} in …" if isinstance(loop, ast.For) else "the loop"
            yield Hit(
                loader.call,
                f"a `DataLoader` and {what} are made anew in every round of `{head}`",
                {"loop line": program.line(loop)},
                "make it once before the loop (`persistent_workers=True` keeps its workers); it shuffles anew in each epoch",
                kind=None if loader.has_workers else "nit",
            )
        elif runs and loader.role == "train" and loader.has_workers and "persistent_workers" not in given and None not in given:
            said.add(maker)
            yield Hit(
                maker,
                "the workers of the training loader are started anew in every epoch",
                {"num_workers": program.text(loader.workers_node) if loader.workers_node is not None else ""},
                "add `persistent_workers=True`",
                kind="nit",
            )


def _hangs_on(program: Program, loader: BatchSource, loop: LoopNode) -> bool:
    """What it is made of changes from round to round, or it is made only now and then."""
    branches = (above for above in program.ancestors(loader.call) if isinstance(above, ast.If))
    if program.facts.is_conditional(loader.call) or any(program.index.holds(loop, branch) for branch in branches):
        return True
    if isinstance(loader.dataset, ast.Call) and program.keyword(loader.dataset, "num_epochs"):
        return True  # a reader that ends
    changing = {part.id for part in program.within(loop, ast.Name) if isinstance(part.ctx, ast.Store)}
    used = names_in(*arguments(loader.call))
    return bool(used & changing - set(program.targets(loader.call)))
