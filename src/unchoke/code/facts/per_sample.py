"""Which code runs once for every sample: `__getitem__` and what it calls, functions mapped over a data set, generators, collate.

In comes a program, out go `SampleFunction` records and a table from each function reached to the record it serves; which
expressions are tf.data pipelines, and what draws at random. Rules say what is wrong with it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from unchoke.code.constant_values import Values
from unchoke.code.facts.vocabulary import DECODERS, RANDOM_GENERATOR_OPTIONS, RANDOM_TRANSFORMS
from unchoke.code.node_index import FunctionNode, arguments

Kind = Literal["getitem", "map", "generator", "collate", "transform"]
AnyFunction = FunctionNode | ast.Lambda
_ITEM_METHODS = ("__getitem__", "__getitems__", "__iter__", "__next__", "__data_generation", "_data_generation")
_DATASET_BASES = frozenset(
    {"Dataset", "IterableDataset", "Sequence", "PyDataset", "VisionDataset", "ImageFolder", "DatasetFolder", "Iterator",
     "TensorDataset", "GeoDataset", "NonGeoDataset", "DirectoryIterator", "MapDataPipe", "IterDataPipe", "DatasetMixin",
     "RandomDataset"}
)  # fmt: skip
_NOT_DATA = frozenset({"collections.abc.Sequence", "typing.Sequence", "collections.abc.Iterator", "typing.Iterator"})
_FITS = frozenset({"fit", "fit_generator", "from_generator", "evaluate_generator", "predict_generator", "train_on_batch"})
_TRANSFORM_OPTIONS = frozenset({"transform", "target_transform", "transforms", "preprocessing_function", "item_tfms", "loader"})
_TF_SOURCES = (
    "tf.data.Dataset.", "tf.data.TFRecordDataset", "tf.data.TextLineDataset", "tf.data.experimental.", "tf.data.FixedLength",
    "tf.keras.utils.image_dataset_from_directory", "tensorflow_datasets.load", "tfds.load", "tf.data.Dataset",
    "tf.keras.utils.audio_dataset", "tf.keras.utils.timeseries",
)  # fmt: skip
_TF_METHODS = frozenset(
    {"map", "batch", "padded_batch", "shuffle", "repeat", "cache", "prefetch", "take", "skip", "filter", "interleave",
     "with_options", "flat_map", "unbatch", "enumerate", "shard", "concatenate", "apply", "ragged_batch", "ignore_errors",
     "snapshot"}
)  # fmt: skip
_TF_ONLY = frozenset({"prefetch", "interleave", "padded_batch", "flat_map", "with_options", "unbatch", "from_tensor_slices"})
_DEEPEST = 12
_RANDOM_NUMBERS = frozenset(
    {"random.random", "random.uniform", "random.randint", "random.choice", "random.gauss", "random.randrange", "random.sample",
     "numpy.random.rand", "numpy.random.random", "numpy.random.uniform", "numpy.random.randint", "numpy.random.choice",
     "numpy.random.normal", "numpy.random.randn", "torch.rand", "torch.randint", "torch.randn", "torch.randn_like",
     "torch.rand_like", "tf.random.uniform", "tf.random.normal", "torch.bernoulli"}
)  # fmt: skip
_RESULTS = re.compile(r"^(?:predict\w*|im(?:write|save)|save_?\w*|to_csv|writerow)$")
_RNG_METHODS = frozenset({"random", "uniform", "integers", "choice", "normal", "randint", "rand"})


@dataclass(frozen=True, eq=False)
class SampleFunction:
    """A function that runs for each sample; `owner` is its data set class."""

    function: AnyFunction
    kind: Kind
    owner: ast.ClassDef | None = None


def dataset_classes(program: Values) -> list[ast.ClassDef]:
    """Data set classes of the file: by their bases, or because they give items and are handed to a loader, a fit or another."""
    bases = {owner: set(program.bases(owner)) - _NOT_DATA for owner in program.nodes(ast.ClassDef)}
    last = {owner: {name.rpartition(".")[2] for name in names} for owner, names in bases.items()}
    found = [owner for owner in bases if last[owner] & _DATASET_BASES or any(name.endswith("Dataset") for name in last[owner])]
    inits = [init for owner in found if (init := program.methods(owner).get("__init__")) is not None]
    calls = [*program.calls_to("DataLoader", "fit", "fit_generator"), *(call for init in inits for call in program.callers(init))]
    handed = dict.fromkeys(program.assigned_class(call.args[0]) for call in calls if call.args)
    items = {"__getitem__", "__iter__"}
    found += [owner for owner in handed if owner and owner not in found and items & program.methods(owner).keys()]
    return program.in_order(found)


def per_sample_functions(program: Values, datasets: list[ast.ClassDef]) -> list[SampleFunction]:
    """All of them, in file order, each once."""
    found: dict[AnyFunction, SampleFunction] = {}
    methods = ((owner, node) for owner in datasets for node in owner.body if isinstance(node, FunctionNode))
    items = (SampleFunction(node, "getitem", owner) for owner, node in methods if node.name in _ITEM_METHODS)
    for record in (*items, *_handed_functions(program), *_generators(program)):
        found.setdefault(record.function, record)
    return sorted(found.values(), key=lambda record: program.index.number[record.function])


def reached_functions(program: Values, records: list[SampleFunction]) -> dict[AnyFunction, SampleFunction]:
    """Every function that runs for each sample, with the record it serves; what is passed on as a function counts too."""
    found: dict[AnyFunction, SampleFunction] = {}
    for record in records:
        left: list[AnyFunction] = [record.function]
        while left:
            function = left.pop()
            if function in found:
                continue
            found[function] = record
            left.extend(functions_run_by(program, function))
    return found


def functions_run_by(program: Values, function: AnyFunction) -> Iterator[AnyFunction]:
    """The functions that it calls, and those that it hands on: `tf.py_function(read, …)`."""
    yield from (inner for inner in program.called_functions(function) if inner.name != "__init__")
    for call in program.within(function, ast.Call):
        for given in arguments(call):
            if isinstance(given, ast.Name | ast.Attribute):
                inner = program.callable_of(given)
                if inner is not None:
                    yield inner


def _handed_functions(program: Values) -> Iterator[SampleFunction]:
    """Functions given to `.map`, `from_generator`, `py_function`, `collate_fn=` and transforms."""
    for call in program.nodes(ast.Call):
        for kind, given in _given_functions(program, call):
            for function in _functions_given(program, given):
                yield SampleFunction(function, kind, program.enclosing_class(function))
                if isinstance(function, ast.Lambda):
                    yield from (SampleFunction(inner, kind) for inner in program.called_functions(function))


def _functions_given(program: Values, given: ast.expr | None) -> list[AnyFunction]:
    """The function itself, or those that a call of a factory makes: `from_generator(samples(ids))`."""
    factory = program.function_of(given) if isinstance(given, ast.Call) else None
    made = [back.value for back in program.returns(factory)] if factory is not None else [given]
    return [function for item in made if (function := program.callable_of(item)) is not None]


def _given_functions(program: Values, call: ast.Call) -> Iterator[tuple[Kind, ast.expr | None]]:
    method = program.method(call)
    if method in ("map", "interleave", "flat_map") and is_tf_dataset(program, call):
        yield "map", program.argument(call, "map_func", 0)
    elif method in ("py_function", "numpy_function", "py_func"):
        yield "map", program.argument(call, "func", 0)
    elif method == "from_generator":
        yield "generator", program.argument(call, "generator", 0)
    elif method in ("set_transform", "with_transform"):
        yield "transform", program.argument(call, "transform", 0)
    elif method == "Lambda" and not program.name(call).startswith("tf."):
        yield from (("transform", given) for given in arguments(call))
    elif method == "Compose" and call.args and isinstance(call.args[0], ast.List | ast.Tuple):
        yield from (("transform", item) for item in call.args[0].elts if isinstance(item, ast.Call | ast.Name))
    for keyword in call.keywords:
        if keyword.arg == "collate_fn":
            yield "collate", keyword.value
        elif keyword.arg in _TRANSFORM_OPTIONS:
            yield "transform", keyword.value


def _generators(program: Values) -> Iterator[SampleFunction]:
    """Functions that yield samples or batches for training."""
    yielding = dict.fromkeys(program.enclosing_function(node) for node in program.nodes(ast.Yield))
    for function in yielding:
        if function is None or function.name in _ITEM_METHODS:
            continue
        managed = any(program.name(mark).endswith("contextmanager") for mark in function.decorator_list)
        if not managed and (_feeds_training(program, function) or _yields_samples(program, function)):
            yield SampleFunction(function, "generator", program.enclosing_class(function))


def _feeds_training(program: Values, function: FunctionNode) -> bool:
    """Is what it makes handed to a fit, a data set or a loop that trains?"""
    fitted = [item for call in program.calls_to(*_FITS) for item in arguments(call)]
    names = {item.id for item in fitted if isinstance(item, ast.Name)}
    callers = program.callers(function)
    return any(call in fitted or not names.isdisjoint(program.targets(call)) for call in callers)


def _yields_samples(program: Values, function: FunctionNode) -> bool:
    """It yields pairs, and decodes images or goes on for ever; not one that predicts or writes: it tells how far it is."""
    pairs = [node for node in program.within(function, ast.Yield) if isinstance(node.value, ast.Tuple | ast.Dict)]
    if not pairs or any(_RESULTS.match(program.method(call)) for call in program.within(function, ast.Call)):
        return False
    endless = any(isinstance(node.test, ast.Constant) and node.test.value for node in program.within(function, ast.While))
    functions: list[ast.AST] = [function, *program.reach(function)]
    decodes = any(program.name(call) in DECODERS for call in program.calls_in(functions))
    return endless or decodes


def is_tf_dataset(program: Values, node: ast.AST | None, depth: int = 0) -> bool:
    """Is this expression a tf.data data set, as far as can be told?"""
    if node is None or depth > _DEEPEST:
        return False
    if isinstance(node, ast.Name) and _is_dataset_parameter(program, node):
        return True
    return any(_is_tf_made(program, made, depth) for made in program.choices(node).nodes if isinstance(made, ast.Call))


def _is_tf_made(program: Values, call: ast.Call, depth: int) -> bool:
    method = program.method(call)
    if program.name(call).startswith(_TF_SOURCES):
        return True
    if not isinstance(call.func, ast.Attribute) or method not in _TF_METHODS:
        return False
    sure = method in _TF_ONLY or program.keyword(call, "num_parallel_calls") is not None
    return sure or is_tf_dataset(program, call.func.value, depth + 1)


def _is_dataset_parameter(program: Values, node: ast.Name) -> bool:
    """A parameter of a function in whose body a telling method (`prefetch`, `interleave`) is called."""
    function = program.enclosing_function(node)
    if function is None or node.id not in [item.arg for item in function.args.args]:
        return False
    methods = {program.method(call) for call in program.within(function, ast.Call) if isinstance(call.func, ast.Attribute)}
    return bool(methods & _TF_ONLY)


def chain_calls(program: Values, method: str) -> Iterator[ast.Call]:
    """All calls of one method on tf.data data sets, in order."""
    for call in program.calls_to(method):
        if isinstance(call.func, ast.Attribute) and is_tf_dataset(program, call.func.value):
            yield call


def is_random_transform(program: Values, call: ast.Call) -> bool:
    name = program.name(call)
    method = name.rpartition(".")[2]
    if method == "ImageDataGenerator":
        return any(keyword.arg in RANDOM_GENERATOR_OPTIONS and program.value(keyword.value) for keyword in call.keywords)
    if method not in RANDOM_TRANSFORMS:
        return False
    return method not in ("Flip", "Rotate", "Transpose", "Equalize", "random_crop", "Affine") or not name.startswith("?.")


def is_random_number(program: Values, call: ast.Call) -> bool:
    """A draw from a random generator."""
    name = program.name(call)
    if name in _RANDOM_NUMBERS:
        return True
    receiver = program.written(program.receiver(call)).lower()
    drawn_from = receiver.rpartition(".")[2] in ("rng", "rs", "generator", "random_state", "rand")
    return drawn_from and name.rpartition(".")[2] in _RNG_METHODS


def draws_at_random(program: Values, function: ast.AST) -> bool:
    """Does this function, or one it calls, draw random numbers or apply a random transform?"""
    parts = [function, *program.reach(function)]
    calls = program.calls_in(parts)
    return any(is_random_number(program, call) or is_random_transform(program, call) for call in calls)


def pipeline_pieces(program: Values, pipeline: ast.Call) -> list[ast.AST]:
    """A pipeline of transforms and, where its list of steps is put together beforehand, what that is made of."""
    found: list[ast.AST] = [pipeline]
    for name in program.within(pipeline, ast.Name):
        if isinstance(name.ctx, ast.Load):
            scope = program.enclosing_function(name)
            given = program.assigned(name.id, at=name)
            found += [item for item in given if isinstance(item, ast.List | ast.BinOp | ast.IfExp | ast.Call)]
            found += [value for at, value in program.added_to(name.id) if program.enclosing_function(at) is scope]
    return found
