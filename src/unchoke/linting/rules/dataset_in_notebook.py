"""A data set that worker processes cannot import.

Where worker processes are started afresh (macOS and Windows always, Linux from Python 3.14 on, anywhere with
`set_start_method("spawn")`) each worker imports the data set's class by name. A class written in a notebook cell, or under
`if __name__ == "__main__":`, is not in any module that can be imported: the loader stops with "Can't get attribute … on
<module '__main__'>" or waits for ever.

**Write instead.** Put the class into a file of its own and import it. In a notebook the cell itself can write it:

    %%writefile leaves.py
    class Leaves(Dataset): ...

    from leaves import Leaves            # in the next cell

In a script move the class above `if __name__ == "__main__":`.

**When this is fine.** On Linux before Python 3.14 workers are forked and see the class: in a notebook it is a nit, in a script a
risk. With `num_workers=0`, and for Keras with `use_multiprocessing=False`, nothing is sent anywhere. `unchoke check` tries
whether a loader's workers start.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.node_index import arguments
from unchoke.code.program import Program
from unchoke.linting.questions import torch_loaders
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    group="process",
    stage="load",
    title="worker processes cannot import the data set's class",
    kind="risk",
    command="unchoke check",
    devices=("macOS", "Windows", "Linux from Python 3.14"),
)
_FITS = frozenset({"fit", "fit_generator", "evaluate", "predict", "evaluate_generator", "predict_generator"})


def check(program: Program) -> Iterator[Hit]:
    seen: set[ast.ClassDef] = set()
    for owner, used in (*_torch(program), *_keras(program)):
        if owner not in seen and (program.is_notebook or program.in_main_guard(owner)):
            seen.add(owner)
            where = "a notebook cell" if program.is_notebook else '`if __name__ == "__main__":`'
            yield Hit(
                owner,
                f"`{owner.name}` is defined in {where} and read by worker processes ({used}), which cannot import it "
                "where they are started afresh",
                {"class": owner.name, "workers": used},
                f"put `class {owner.name}` into a file (`%%writefile {owner.name.lower()}.py` at the top of its cell), import it"
                if program.is_notebook
                else f"move `class {owner.name}` above the guard, to the top level of the script",
                kind="nit" if program.is_notebook else None,  # most run where workers are forked
            )


def _torch(program: Program) -> Iterator[tuple[ast.ClassDef, str]]:
    for loader in torch_loaders(program):
        if loader.dataset_class is not None and loader.has_workers:
            node = loader.workers_node
            yield loader.dataset_class, f"num_workers={program.text(node)}" if node is not None else "num_workers"


def _keras(program: Program) -> Iterator[tuple[ast.ClassDef, str]]:
    """A Sequence given to `fit(…, use_multiprocessing=True)`, or made with that option."""
    for call in program.nodes(ast.Call):
        if not call.keywords or program.value(program.argument(call, "use_multiprocessing")) is not True:
            continue
        owners = [program.enclosing_class(call) if program.method(call) == "__init__" else program.assigned_class(call)]
        if program.method(call) in _FITS:
            owners = [program.assigned_class(item) for item in arguments(call)]
        yield from ((owner, "use_multiprocessing=True") for owner in owners if owner in program.facts.datasets and owner)
