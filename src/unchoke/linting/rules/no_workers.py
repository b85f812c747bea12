"""Pictures decoded one after another in the process that trains.

Without `num_workers` a DataLoader decodes each picture between two training steps: one core reads and decodes while the
accelerator and all other cores wait. A tf.data `.map` without `num_parallel_calls` does the same, and so
does a Keras `Sequence` or an `ImageDataGenerator` flow: `fit` reads it with one thread unless it is given more.

**Write instead.**

    DataLoader(data, batch_size=32, shuffle=True, num_workers=4, persistent_workers=True)
    dataset.map(load, num_parallel_calls=tf.data.AUTOTUNE)
    model.fit(sequence, workers=4, use_multiprocessing=True)               # Keras 2
    Photos(paths, workers=4, use_multiprocessing=True)                     # Keras 3: a PyDataset has them itself

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

from unchoke.code.facts.keeping import is_kept
from unchoke.code.facts.loaders import BatchSource, decode_calls
from unchoke.code.facts.per_sample import chain_calls
from unchoke.code.facts.training_feeds import FLOWS, Feed, few, item_functions, keras_feeds, num_epochs
from unchoke.code.facts.vocabulary import DECODERS, RANDOM_GENERATOR_OPTIONS, RASTER_OPENERS, RASTER_READERS, role_of
from unchoke.code.node_index import FunctionNode
from unchoke.code.program import Program
from unchoke.core.findings import Kind
from unchoke.linting.rule import Hit, Rule, append_arguments, at_method

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
    yield from _keras(program)
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
        name = name or (program.text(loader.dataset) if loader.dataset is not None else "the data set")
        given = "no `num_workers`" if loader.workers is None else "`num_workers=0`"
        given += " unless the command line says otherwise" if program.rests_on_option(loader.workers_node) else ""
        moved = f", after moving `{name}` to a file that workers can import" if program.is_notebook and owner else ""
        known = loader.workers is None and not moved and loader.maker in (None, loader.call)
        edit = append_arguments(program, loader.call, "num_workers=4, persistent_workers=True") if known else None
        yield Hit(
            loader.maker or loader.call,
            f"the training loader has {given}, and `{name}` decodes each sample in the process that trains",
            {"data set": name, "num_workers": 0},
            f"add `num_workers=4, persistent_workers=True`{moved}",
            suggestion=(edit,) if edit is not None else (),
        )


def _keras(program: Program) -> Iterator[Hit]:
    """A `fit` that reads a Sequence, a flow from files or a generator with one thread."""
    found: dict[ast.AST | None, Hit] = {}
    function: FunctionNode | None = None
    for feed in keras_feeds(program):
        call = feed.fit.call
        if _sets_workers(program, feed):
            continue
        kind: Kind | None = "nit" if few(num_epochs(program, feed.fit), below=5) else None
        owner = program.assigned_class(feed.given)
        flow = next((item for item in feed.made_of if program.method(item) in FLOWS), None)
        if owner in program.facts.datasets and any(
            decode_calls(program, item, DECODERS | RASTER_READERS) for item in item_functions(program, owner)
        ):
            name = owner.name if owner is not None else ""
            fix = (
                f"Keras 3: pass `**kwargs` on to `super().__init__` in `{name}` and make it with `workers=4, "
                "use_multiprocessing=True`; Keras 2: give both to `fit`"
            )
            message = f"`{program.text(call.func)}` reads `{name}`, which decodes each picture in Python, with one thread"
        elif flow is not None and (program.method(flow) != "flow" or _warps(program, feed)):
            name = (program.targets(flow) or ["batches"])[0]
            fix = f"Keras 2: `fit(…, workers=4)`; Keras 3: `{name}.workers = 4` before it"
            does = "decodes" if program.method(flow) != "flow" else "warps"
            kind = kind if does == "decodes" else "nit"
            message = (
                f"`{program.text(call.func)}` has one thread for `{program.method(flow)}`, which {does} each picture in Python"
            )
        elif (function := _generator(program, feed)) is not None:
            name = function.name
            fix = "make it a `keras.utils.Sequence` (Keras 3: `PyDataset`) with `workers=4`, or tf.data with a parallel `map`"
            message = (
                f"`{program.text(call.func)}` reads the generator `{name}`, which decodes in Python and can have one thread only"
            )
        else:
            continue
        source = owner or flow or function
        if source not in found or found[source].kind == "nit":
            found[source] = Hit(at_method(program, call), message, {"data set": name, "workers": 1}, fix, kind=kind)
    yield from found.values()


def _generator(program: Program, feed: Feed) -> FunctionNode | None:
    """A function of the file that yields what it decodes."""
    for call in feed.made_of:
        function = program.function_of(call)
        if function is not None and any(True for _ in program.within(function, ast.Yield)):
            return function if decode_calls(program, function, DECODERS | RASTER_READERS) else None
    return None


def _warps(program: Program, feed: Feed) -> bool:
    makers = [item for item in feed.made_of if program.method(item) == "ImageDataGenerator"]
    return any(word.arg in RANDOM_GENERATOR_OPTIONS for item in makers for word in item.keywords)


def _sets_workers(program: Program, feed: Feed) -> bool:
    """Are workers given, anywhere they can be, or can that not be told?"""
    made = [item for item in feed.made_of if any(word.arg in ("workers", "use_multiprocessing") for word in item.keywords)]
    unclear = any(word.arg is None for item in (feed.fit.call, *feed.made_of[:1]) for word in item.keywords)
    workers = program.argument(feed.fit.call, "workers")
    several = workers is not None and program.value(workers) not in (0, 1)
    names = set(program.targets(feed.made_of[0])) if feed.made_of else set()
    later = any(program.written(item.value) in names for item in program.attributes("workers"))
    owner = program.assigned_class(feed.given)
    inside = program.calls_to("__init__") if owner is not None else []
    passed = any(program.keyword(item, "workers") and program.enclosing_class(item) is owner for item in inside)
    return bool(made) or unclear or several or later or passed


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
    return any(program.name(call) in RASTER_READERS or not is_kept(program, call) for call in calls)


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
