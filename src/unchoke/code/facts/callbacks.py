"""The callbacks that a Keras `fit` or a Lightning trainer is given, and whether one of them does a thing at each epoch's end.

In comes the call, out go the expressions that make the callbacks. `None` means that it cannot be told from this file.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from unchoke.code.program import Program
from unchoke.code.signatures import default_of, parameters

_DEEPEST = 8
_HARMLESS = re.compile(
    r"stop|lr|rate|schedul|tqdm|prog|plot|time|nan|freez|anneal|cycl|warm|decay|plateau|bar$|metric|print|gc|memory",
    re.IGNORECASE,
)
Does = Callable[[Program, ast.AST], bool]


def callbacks_of(program: Program, call: ast.Call) -> list[ast.expr] | None:
    """Each callback as the expression that makes it; None if some of them cannot be told."""
    if any(keyword.arg is None for keyword in call.keywords):
        return None
    position = {"fit": 5, "fit_generator": 4}.get(program.method(call))
    given = program.argument(call, "callbacks", position)
    return [] if given is None else _elements(program, given, 0)


def _elements(program: Program, node: ast.expr, depth: int) -> list[ast.expr] | None:
    if depth > _DEEPEST:
        return None
    if isinstance(node, ast.Constant):
        return []
    if isinstance(node, ast.List | ast.Tuple):
        return _joined(program, [item.value if isinstance(item, ast.Starred) else item for item in node.elts], depth)
    if isinstance(node, ast.BinOp):
        return _joined(program, [node.left, node.right], depth)
    if isinstance(node, ast.IfExp):
        return _joined(program, [node.body, node.orelse], depth)
    if isinstance(node, ast.BoolOp):
        return _joined(program, node.values, depth)
    if isinstance(node, ast.Call):
        return _called(program, node, depth)
    return _named(program, node, depth) if isinstance(node, ast.Name | ast.Attribute) else None


def _joined(program: Program, nodes: list[ast.expr], depth: int) -> list[ast.expr] | None:
    found: list[ast.expr] = []
    for node in nodes:
        some = _elements(program, node, depth + 1)
        if some is None:
            return None
        found += some
    return found


def _called(program: Program, call: ast.Call, depth: int) -> list[ast.expr] | None:
    if program.name(call) in ("list", "tuple") or program.method(call) == "CallbackList":
        return _elements(program, call.args[0], depth + 1) if call.args else []
    function = program.functions.get(call.func.id) if isinstance(call.func, ast.Name) else None
    if function is None:
        return [call]
    values = [item.value for item in program.within(function, ast.Return) if item.value is not None]
    return _joined(program, values, depth)


def _named(program: Program, node: ast.Name | ast.Attribute, depth: int) -> list[ast.expr] | None:
    name = program.written(node)
    given = program.assigned(name, node) or ([] if isinstance(node, ast.Attribute) else _given_to_parameter(program, node))
    if not given:
        return None
    found = _joined(program, given, depth)
    added = _joined(program, list(_added(program, name)), depth)
    return None if found is None or added is None else found + added


def _given_to_parameter(program: Program, node: ast.Name) -> list[ast.expr]:
    function = program.enclosing_function(node)
    if function is None or node.id not in parameters(function):
        return []
    given = [program.calls.argument_for(call, function, node.id) for call in program.callers(function)]
    return [item for item in (*given, default_of(function, node.id)) if item is not None]


def _added(program: Program, name: str) -> Iterator[ast.expr]:
    """What is appended to the list later."""
    for call in program.nodes(ast.Call):
        adds = isinstance(call.func, ast.Attribute) and call.func.attr in ("append", "extend", "insert") and bool(call.args)
        if adds and program.written(program.receiver(call)) == name:
            yield call.args[-1]
    for node in program.nodes(ast.AugAssign):
        if program.written(node.target) == name:
            yield node.value


def one_does(program: Program, callbacks: list[ast.expr], known: frozenset[str], does: Does) -> bool | None:
    """Is one of them named in `known`, or does its class of this file do it? None if one is of another file and may."""
    answers = [_does_it(program, item, known, does) for item in callbacks]
    if True in answers:
        return True
    return None if None in answers else False


def _does_it(program: Program, node: ast.expr, known: frozenset[str], does: Does) -> bool | None:
    if not isinstance(node, ast.Call):
        return None
    name = program.name(node)
    kind = name.rpartition(".")[2]
    if kind in known:
        return True
    owner = program.assigned_class(node)
    if owner is not None:
        bases = {base.rpartition(".")[2] for base in program.bases(owner)}
        parts: list[ast.AST] = [*owner.body, *(function for item in owner.body for function in program.reach(item))]
        return bool(bases & known) or any(does(program, call) for part in parts for call in program.within(part, ast.Call))
    if kind == "LambdaCallback":
        return _lambda_does(program, node, does)
    return (
        False if name.startswith(("tf.keras.", "lightning.", "tqdm.", "tensorflow_addons.")) or _HARMLESS.search(kind) else None
    )


def _lambda_does(program: Program, call: ast.Call, does: Does) -> bool:
    parts: list[ast.AST] = []
    for keyword in call.keywords:
        function = program.callable_of(keyword.value)
        if function is not None:
            parts += [function, *program.reach(function)]
    return any(does(program, inner) for part in parts for inner in program.within(part, ast.Call))
