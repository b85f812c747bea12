"""Pictures decoded one after another in the process that trains.

Without `num_workers` a DataLoader decodes each picture between two training steps: one core reads and decodes while the
accelerator and all other cores wait. So does a Keras `Sequence` or an `ImageDataGenerator` flow, which `fit` reads with one
thread unless it is given more, and a tf.data `.map` without `num_parallel_calls` whose function runs Python. Others TensorFlow
runs side by side by itself (from 2.10 on at the latest): there it is a nit.

**Write instead.**

    DataLoader(data, batch_size=32, shuffle=True, num_workers=4, persistent_workers=True)
    dataset.map(load, num_parallel_calls=tf.data.AUTOTUNE)
    model.fit(sequence, workers=4)               # Keras 2
    Photos(paths, workers=4)                     # Keras 3: a PyDataset has them itself

Two to four workers for each accelerator are a good start; `persistent_workers=True` keeps them between epochs. In a notebook
the data set's class has to be in a file for this (see dataset-in-notebook).

**When this is fine.** Data already in memory, a data set that keeps what it decoded, evaluation of a few pictures, a machine
with one core. What workers gain depends on the cores: on two of them the planted script went from 5.5 s to 4.8 s.
`unchoke profile` tells whether training waits for data at all; `unchoke extract` decodes each picture once instead of in each
epoch.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from unchoke.code.facts.epochs import Feed, few, item_functions, keras_feeds
from unchoke.code.facts.keeping import is_kept
from unchoke.code.facts.loaders import FLOWS, BatchSource, decode_calls
from unchoke.code.facts.per_sample import chain_calls, functions_run_by
from unchoke.code.facts.stakes import runs_itself
from unchoke.code.facts.vocabulary import DECODERS, RANDOM_GENERATOR_OPTIONS, RASTER_OPENERS, RASTER_READERS, role_of
from unchoke.code.node_index import FunctionNode
from unchoke.code.nodes import is_main_test
from unchoke.code.program import Program
from unchoke.linting.questions import torch_loaders
from unchoke.linting.rule import Hit, Rule, append_arguments, at_method, shortened

RULE = Rule(
    group="process",
    stage="load",
    title="decoding in the process that trains",
    gain="25 % of a planted script's time, on two cores",
    claim="Planted chokes",
    command="unchoke profile",
)


_STATEFUL = frozenset({"py_function", "numpy_function", "py_func"})


def check(program: Program) -> Iterator[Hit]:
    yield from _keras(program)
    for found in (_torch(program), _tf_data(program)):
        yield from itertools.islice(found, 1)


def _torch(program: Program) -> Iterator[Hit]:
    for loader in torch_loaders(program):
        if loader.role != "train" or loader.has_workers is not False or not _decodes_each_time(program, loader):
            continue
        owner = loader.dataset_class
        name = owner.name if owner is not None else program.made_by(loader.dataset).rpartition(".")[2]
        name = name or (program.text(loader.dataset) if loader.dataset is not None else "the data set")
        given = "no `num_workers`" if loader.workers is None else "`num_workers=0`"
        given += " unless the command line says otherwise" if program.rests_on_option(loader.workers_node) else ""
        moved = f", after moving `{name}` to a file that workers can import" if program.is_notebook and owner else ""
        guarded = program.is_notebook or any(is_main_test(node.test) for node in program.nodes(ast.If))
        guard = (
            ', and put what runs at module level under `if __name__ == "__main__":`'
            if runs_itself(program) and not guarded
            else ""
        )
        change = "add `num_workers=4, persistent_workers=True`" if loader.workers is None else "make `num_workers` 4 instead of 0"
        known = loader.workers is None and not moved and loader.maker in (None, loader.call)
        edit = append_arguments(program, loader.call, "num_workers=4, persistent_workers=True") if known else None
        yield Hit(
            loader.maker or loader.call,
            f"the training loader has {given}, and `{name}` decodes each sample in the process that trains",
            {"data set": name, "num_workers": 0},
            f"{change}{moved}{guard}",
            suggestion=(edit,) if edit is not None else (),
        )


def _keras(program: Program) -> Iterator[Hit]:
    """A `fit` that reads a Sequence, a flow from files or a generator with one thread."""
    found: dict[ast.AST, Hit] = {}
    for feed in keras_feeds(program):
        read = _read_alone(program, feed) if not _sets_workers(program, feed) else None
        if read is None:
            continue
        source, name, does, fix = read
        few_epochs = few(feed.fit.num_epochs, below=5)
        if source not in found or found[source].kind == "nit":
            found[source] = Hit(
                at_method(program, feed.fit.call),
                f"`{program.text(feed.fit.call.func)}` {does}",
                {"data set": name, "workers": 1},
                fix,
                kind="nit" if few_epochs or "warps" in does else None,
            )
    yield from found.values()


def _read_alone(program: Program, feed: Feed) -> tuple[ast.AST, str, str, str] | None:
    """What decodes each picture in Python, its name, what `fit` does with it, and what to write."""
    owner = program.assigned_class(feed.given)
    older = f"Keras 2: `{program.method(feed.fit.call)}(…, workers=4)`"  # `fit_generator` is gone in Keras 3
    if owner is not None and owner in program.facts.datasets:
        items = item_functions(program, owner)
        if any(decode_calls(program, item, DECODERS | RASTER_READERS) for item in items):
            newer = f"; Keras 3: pass `**kwargs` on to `super().__init__` in `{owner.name}` and make it with `workers=4`"
            fix = older + (newer if "fit(" in older else "")
            return owner, owner.name, f"reads `{owner.name}`, which decodes each picture in Python, with one thread", fix
    flow = next((item for item in feed.made_of if program.method(item) in FLOWS), None)
    makers = [item for item in feed.made_of if program.method(item) == "ImageDataGenerator"]
    warps = any(word.arg in RANDOM_GENERATOR_OPTIONS for item in makers for word in item.keywords)
    if flow is not None and (program.method(flow) != "flow" or warps):
        name, method = (program.targets(flow) or ["batches"])[0], program.method(flow)
        does = "decodes" if method != "flow" else "warps"
        fix = older + (f"; Keras 3: `{name}.workers = 4` before it" if "fit(" in older else "")
        return flow, name, f"has one thread for `{method}`, which {does} each picture in Python", fix
    function = _generator(program, feed)
    if function is not None:
        fix = "make it a `keras.utils.Sequence` (Keras 3: `PyDataset`) with `workers=4`, or tf.data with a parallel `map`"
        does = f"reads the generator `{function.name}`, which decodes in Python and can have one thread only"
        return function, function.name, does, fix
    return None


def _generator(program: Program, feed: Feed) -> FunctionNode | None:
    """A function of the file that yields what it decodes."""
    for call in feed.made_of:
        function = program.function_of(call)
        if function is not None and any(True for _ in program.within(function, ast.Yield)):
            return function if decode_calls(program, function, DECODERS | RASTER_READERS) else None
    return None


def _sets_workers(program: Program, feed: Feed) -> bool:
    """Are workers given, anywhere they can be, or can that not be told?"""
    fit, made, owner = feed.fit.call, feed.made_of, program.assigned_class(feed.given)
    if any(word.arg in ("workers", "use_multiprocessing") for item in made for word in item.keywords):
        return True
    if any(word.arg is None for item in (fit, *made[:1]) for word in item.keywords):
        return True
    workers = program.argument(fit, "workers")
    names = program.targets(made[0]) if made else []
    later = any(program.written(item.value) in names for item in program.attributes("workers"))
    inside = (item for item in program.calls_to("__init__") if owner is not None and program.enclosing_class(item) is owner)
    several = workers is not None and program.value(workers) not in (0, 1)
    return several or later or any(program.keyword(item, "workers") for item in inside)


def _decodes_each_time(program: Program, loader: BatchSource) -> bool:
    """Not if what was decoded is kept, or if only a container of arrays is opened once."""
    methods = program.methods(loader.dataset_class) if loader.dataset_class is not None else {}
    items = [methods[name] for name in ("__getitem__", "__iter__") if name in methods]
    calls = [call for item in items for call in decode_calls(program, item, DECODERS | RASTER_OPENERS)]
    anew = not items or any(program.name(call) in RASTER_READERS or not is_kept(program, call) for call in calls)
    return loader.decodes and anew


def _tf_data(program: Program) -> Iterator[Hit]:
    """Every `.map` of a decoding function that is not parallel, but for those of evaluation."""
    for call in chain_calls(program, "map"):
        roles = {role_of(name) for name in program.targets(call)}
        parallel = program.argument(call, "num_parallel_calls", 1) is not None or any(item.arg is None for item in call.keywords)
        function = program.callable_of(call.args[0]) if call.args else None
        if function is None or parallel or ("eval" in roles and "train" not in roles):
            continue
        if any(program.facts.decodes(part) for part in (function, *functions_run_by(program, function))):
            name = shortened(program, call.args[0], keep_end=False)
            yield Hit(
                at_method(program, call),
                f"`.map({name})` decodes one picture at a time: `num_parallel_calls` is not given",
                {"function": name},
                f"write `.map({name}, num_parallel_calls=tf.data.AUTOTUNE)`"
                if not name.endswith("…")
                else "give this `.map` a `num_parallel_calls=tf.data.AUTOTUNE`",
                kind=None if any(program.method(item) in _STATEFUL for item in program.calls_in([function])) else "nit",
            )
