"""Which code runs once for every sample: `__getitem__` and what it calls, functions mapped over a data set, generators, collate.

In comes a program, out go `PerSample` records and a table from each function reached to the record it serves. Does not say what
that code does: rules do.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from unchoke.code.constant_values import Valued
from unchoke.code.facts.tables import DECODERS
from unchoke.code.facts.tf_data import is_tf_dataset
from unchoke.code.node_index import FunctionNode

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


@dataclass(frozen=True, eq=False)
class PerSample:
    """A function that runs for each sample; `owner` is its data set class."""

    function: AnyFunction
    kind: Kind
    owner: ast.ClassDef | None = None


def dataset_classes(program: Valued) -> list[ast.ClassDef]:
    """Data set classes of the file: by their bases, or because they give items and are handed to a loader or a fit."""
    found = [owner for owner in program.nodes(ast.ClassDef) if _is_dataset(program, owner)]
    handed = set(_handed_over(program))
    for owner in program.nodes(ast.ClassDef):
        if owner not in found and owner in handed and {"__getitem__", "__iter__"} & program.methods(owner).keys():
            found.append(owner)
    return sorted(found, key=lambda owner: program.index.number[owner])


def _is_dataset(program: Valued, owner: ast.ClassDef) -> bool:
    names = [name for name in program.bases(owner) if name not in _NOT_DATA]
    return any(name.rpartition(".")[2] in _DATASET_BASES or name.endswith("Dataset") for name in names)


def _handed_over(program: Valued) -> Iterator[ast.ClassDef]:
    for call in program.calls_to("DataLoader", "fit", "fit_generator"):
        if call.args:
            owner = program.assigned_class(call.args[0])
            if owner is not None:
                yield owner


def per_sample_functions(program: Valued, datasets: list[ast.ClassDef]) -> list[PerSample]:
    """All of them, in file order, each once."""
    found: dict[AnyFunction, PerSample] = {}
    for record in (*_items(program, datasets), *_handed_functions(program), *_generators(program)):
        found.setdefault(record.function, record)
    return sorted(found.values(), key=lambda record: program.index.number[record.function])


def reached_functions(program: Valued, records: list[PerSample]) -> dict[AnyFunction, PerSample]:
    """Every function that runs for each sample, with the record it serves; what is passed on as a function counts too."""
    found: dict[AnyFunction, PerSample] = {}
    for record in records:
        left: list[AnyFunction] = [record.function]
        while left:
            function = left.pop()
            if function in found:
                continue
            found[function] = record
            left.extend(_next(program, function))
    return found


def _next(program: Valued, function: AnyFunction) -> Iterator[AnyFunction]:
    yield from (inner for inner in program.called_functions(function) if inner.name != "__init__")
    for call in program.within(function, ast.Call):
        for given in (*call.args, *(keyword.value for keyword in call.keywords)):
            if isinstance(given, ast.Name | ast.Attribute):
                inner = program.callable_of(given)
                if inner is not None:
                    yield inner


def _items(program: Valued, datasets: list[ast.ClassDef]) -> Iterator[PerSample]:
    for owner in datasets:
        for node in owner.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in _ITEM_METHODS:
                yield PerSample(node, "getitem", owner)


def _handed_functions(program: Valued) -> Iterator[PerSample]:
    """Functions given to `.map`, `from_generator`, `py_function`, `collate_fn=` and transforms."""
    for call in program.nodes(ast.Call):
        for kind, given in _given_functions(program, call):
            function = program.callable_of(given)
            if function is None:
                continue
            yield PerSample(function, kind, program.enclosing_class(function))
            if isinstance(function, ast.Lambda):
                yield from (PerSample(inner, kind) for inner in program.called_functions(function))


def _given_functions(program: Valued, call: ast.Call) -> Iterator[tuple[Kind, ast.expr | None]]:
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
        yield from (("transform", given) for given in (*call.args, *(item.value for item in call.keywords)))
    elif method == "Compose" and call.args and isinstance(call.args[0], ast.List | ast.Tuple):
        yield from (("transform", item) for item in call.args[0].elts if isinstance(item, ast.Call | ast.Name))
    for keyword in call.keywords:
        if keyword.arg == "collate_fn":
            yield "collate", keyword.value
        elif keyword.arg in _TRANSFORM_OPTIONS:
            yield "transform", keyword.value


def _generators(program: Valued) -> Iterator[PerSample]:
    """Functions that yield samples or batches for training."""
    for function in _yielding(program):
        if any(program.name(mark).endswith("contextmanager") for mark in function.decorator_list):
            continue
        if _feeds_training(program, function) or _yields_samples(program, function):
            yield PerSample(function, "generator", program.enclosing_class(function))


def _yielding(program: Valued) -> Iterator[FunctionNode]:
    seen: set[FunctionNode] = set()
    for node in program.nodes(ast.Yield):
        function = program.enclosing_function(node)
        if function is not None and function not in seen and function.name not in _ITEM_METHODS:
            seen.add(function)
            yield function


def _feeds_training(program: Valued, function: FunctionNode) -> bool:
    """Is what it makes handed to a fit, a data set or a loop that trains?"""
    for call in program.callers(function):
        names = program.targets(call)
        parent = program.parent(call)
        if isinstance(parent, ast.Call) and program.method(parent) in _FITS:
            return True
        if any(_is_fitted(program, name) for name in names):
            return True
    return False


def _is_fitted(program: Valued, name: str) -> bool:
    for call in program.calls_to(*_FITS):
        given = (*call.args, *(keyword.value for keyword in call.keywords))
        if any(isinstance(item, ast.Name) and item.id == name for item in given):
            return True
    return False


def _yields_samples(program: Valued, function: FunctionNode) -> bool:
    """It yields pairs, and decodes images or goes on for ever."""
    pairs = [node for node in program.within(function, ast.Yield) if isinstance(node.value, ast.Tuple | ast.Dict)]
    if not pairs:
        return False
    endless = any(isinstance(node.test, ast.Constant) and node.test.value for node in program.within(function, ast.While))
    functions: list[ast.AST] = [function, *program.reach(function)]
    decodes = any(program.name(call) in DECODERS for part in functions for call in program.within(part, ast.Call))
    return endless or decodes
