"""Pictures decoded one after another in the process that trains.

Without `num_workers` a DataLoader decodes each picture between two training steps: one core reads and decodes while the
accelerator and all other cores wait. A tf.data `.map` without `num_parallel_calls` does the same.

**Write instead.**

    DataLoader(data, batch_size=32, shuffle=True, num_workers=4, persistent_workers=True)
    dataset.map(load, num_parallel_calls=tf.data.AUTOTUNE)

Two to four workers for each accelerator are a good start; `persistent_workers=True` keeps them between epochs. In a notebook
the data set's class has to be in a file for this (see dataset-in-notebook).

**When this is fine.** Data already in memory, a data set that keeps what it decoded, evaluation of a few pictures, a machine
with one core. What workers gain depends on the cores: on two of them the planted script went from 5.5 s to 4.8 s.
`unchoke profile` tells whether training waits for data at all; `unchoke extract` decodes each picture once instead of in each
epoch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.facts.loaders import BatchSource, decode_calls
from unchoke.code.facts.per_sample import chain_calls
from unchoke.code.facts.vocabulary import DECODERS, RASTER_OPENERS, RASTER_READERS, role_of
from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule, at_method

RULE = Rule(
    code="no-workers",
    group="process",
    stage="load",
    title="decoding in the process that trains",
    gain="25 % of a planted script's time, on two cores",
    claim="Planted chokes",
    command="unchoke profile",
)


def check(program: Program) -> Iterator[Hit]:
    hit = next(_torch(program), None)
    if hit is not None:
        yield hit
    hit = next(_tf_data(program), None)
    if hit is not None:
        yield hit


def _torch(program: Program) -> Iterator[Hit]:
    for loader in program.facts.loaders:
        decodes = loader.framework == "torch" and loader.role == "train" and loader.decodes
        if not decodes or loader.has_workers is not False:
            continue
        if not _is_for_training(program, loader) or not _decodes_each_time(program, loader):
            continue
        owner = loader.dataset_class
        name = owner.name if owner is not None else program.made_by(loader.dataset).rpartition(".")[2]
        given = "no `num_workers`" if loader.workers is None else "`num_workers=0`"
        given += " unless the command line says otherwise" if program.rests_on_option(loader.workers_node) else ""
        moved = f", after moving `{name}` to a file that workers can import" if program.is_notebook and owner else ""
        yield Hit(
            loader.maker or loader.call,
            f"the training loader has {given}, and `{name}` decodes each sample in the process that trains",
            {"data set": name, "num_workers": 0},
            f"add `num_workers=4, persistent_workers=True`{moved}",
        )


def _is_for_training(program: Program, loader: BatchSource) -> bool:
    """A function that makes several loaders names each by its data set."""
    maker = loader.maker
    if maker is None or maker is loader.call:
        return True
    return role_of(program.written(program.argument(maker, "dataset", 0))) != "eval"


def _decodes_each_time(program: Program, loader: BatchSource) -> bool:
    """Not if what was decoded is kept, or if only a container of arrays is opened once."""
    if loader.dataset_class is None:
        return True
    methods = program.methods(loader.dataset_class)
    items = [methods[name] for name in ("__getitem__", "__iter__") if name in methods]
    if not items:
        return True
    calls = [call for item in items for call in decode_calls(program, item, DECODERS | RASTER_OPENERS)]
    return any(program.name(call) in RASTER_READERS or not _is_kept(program, call) for call in calls)


def _is_kept(program: Program, call: ast.Call) -> bool:
    facts = program.facts
    if facts.is_lazy(call) or facts.is_after_cache(call):
        return True
    function = program.enclosing_function(call)
    uses = program.callers(function) if function is not None else []
    return bool(uses) and all(facts.is_lazy(use) or facts.is_after_cache(use) for use in uses)


def _tf_data(program: Program) -> Iterator[Hit]:
    """The first `.map` of a decoding function that is not parallel, of training before others; none if only evaluation has it."""
    found = [call for call in chain_calls(program, "map") if _decodes_alone(program, call)]
    for call in found:
        names = program.targets(call)
        if any(role_of(name) == "eval" for name in names) and not any(role_of(name) == "train" for name in names):
            continue
        name = program.text(call.args[0])[:40]
        yield Hit(
            at_method(program, call),
            f"`.map({name})` decodes one picture at a time: `num_parallel_calls` is not given",
            {"function": name},
            f"write `.map({name}, num_parallel_calls=tf.data.AUTOTUNE)`",
        )


def _decodes_alone(program: Program, call: ast.Call) -> bool:
    if program.argument(call, "num_parallel_calls", 1) is not None or any(item.arg is None for item in call.keywords):
        return False
    if not call.args:
        return False
    function = program.callable_of(call.args[0])
    return function is not None and any(program.facts.decodes(part) for part in (function, *_passed_on(program, function)))


def _passed_on(program: Program, function: ast.AST) -> Iterator[ast.AST]:
    """Functions of the file that are given to `tf.py_function` or `tf.numpy_function` here."""
    for call in program.within(function, ast.Call):
        if program.method(call) in ("py_function", "numpy_function", "py_func") and call.args:
            inner = program.callable_of(call.args[0])
            if inner is not None:
                yield inner
