"""tf.data pipelines: which expressions are data sets, and which functions they are given."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.constant_values import Valued

_SOURCES = (
    "tf.data.Dataset.", "tf.data.TFRecordDataset", "tf.data.TextLineDataset", "tf.data.experimental.", "tf.data.FixedLength",
    "tf.keras.utils.image_dataset_from_directory", "tensorflow_datasets.load", "tfds.load", "tf.data.Dataset",
    "tf.keras.utils.audio_dataset", "tf.keras.utils.timeseries",
)  # fmt: skip
_METHODS = frozenset(
    {"map", "batch", "padded_batch", "shuffle", "repeat", "cache", "prefetch", "take", "skip", "filter", "interleave",
     "with_options", "flat_map", "unbatch", "enumerate", "shard", "concatenate", "apply", "ragged_batch", "ignore_errors",
     "snapshot"}
)  # fmt: skip
_TELLING = frozenset({"prefetch", "interleave", "padded_batch", "flat_map", "with_options", "unbatch", "from_tensor_slices"})
_DEEPEST = 12


def is_tf_dataset(program: Valued, node: ast.AST | None, depth: int = 0) -> bool:
    """Is this expression a tf.data data set, as far as can be told?"""
    if node is None or depth > _DEEPEST:
        return False
    if isinstance(node, ast.Call):
        name = program.name(node)
        if name.startswith(_SOURCES):
            return True
        method = program.method(node)
        if isinstance(node.func, ast.Attribute) and method in _METHODS:
            if method in _TELLING or program.keyword(node, "num_parallel_calls"):
                return True
            return is_tf_dataset(program, node.func.value, depth + 1)
        function = program.function_of(node)
        if function is not None:
            returns = program.within(function, ast.Return)
            return any(is_tf_dataset(program, item.value, depth + 1) for item in returns)
        return False
    if isinstance(node, ast.Name | ast.Attribute):
        given = program.latest(node)
        if given is not None and given is not node:
            return is_tf_dataset(program, given, depth + 1)
        return isinstance(node, ast.Name) and _is_dataset_parameter(program, node)
    if isinstance(node, ast.IfExp):
        return is_tf_dataset(program, node.body, depth + 1) or is_tf_dataset(program, node.orelse, depth + 1)
    return False


def _is_dataset_parameter(program: Valued, node: ast.Name) -> bool:
    """A parameter of a function in whose body a telling method (`prefetch`, `interleave`) is called."""
    function = program.enclosing_function(node)
    if function is None or node.id not in [item.arg for item in function.args.args]:
        return False
    methods = {program.method(call) for call in program.within(function, ast.Call) if isinstance(call.func, ast.Attribute)}
    return bool(methods & _TELLING)


def chain_calls(program: Valued, method: str) -> Iterator[ast.Call]:
    """All calls of one method on tf.data data sets, in order."""
    for call in program.calls_to(method):
        if isinstance(call.func, ast.Attribute) and is_tf_dataset(program, call.func.value):
            yield call


def before(program: Valued, call: ast.Call) -> list[ast.Call]:
    """The calls of the pipeline that come before this one, nearest first, through variables and functions that return it."""
    found: list[ast.Call] = []
    node: ast.AST | None = program.receiver(call)
    while node is not None and len(found) < 60:
        if isinstance(node, ast.Call):
            found.append(node)
            node = program.receiver(node) if isinstance(node.func, ast.Attribute) else _returned(program, node)
        elif isinstance(node, ast.Name | ast.Attribute):
            given = program.latest(node)
            node = given if given is not node else None
        else:
            break
    return found


def _returned(program: Valued, call: ast.Call) -> ast.expr | None:
    """What a function of this file gives back at its end."""
    function = program.function_of(call)
    returns = list(program.within(function, ast.Return)) if function is not None else []
    return returns[-1].value if returns else None
