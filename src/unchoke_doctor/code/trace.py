"""Where a value comes from: the expressions behind a name, the constants an expression may have, the arguments of a call.

`origins` follows names, attributes of objects and configuration classes, items of dictionaries, results of functions of the
program, and parameters to the calls that give them. `values` are the constants at the end of that, with `UNKNOWN` for each end
that is none: a rule that needs certainty asks that every value fits.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from typing import Any, Final

from unchoke_doctor.code.program import FUNCTIONS, Binding, FunctionNode, Program, remembered

_MOST_ENDS = 30
_MOST_CALLERS = 6


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = _Unknown()
# Calls that hand on their first argument, more or less, and methods that hand on their object.
PASSES_FIRST = frozenset({
    "tqdm", "trange", "enumerate", "iter", "next", "list", "tuple", "sorted", "reversed", "zip", "random_split", "Subset",
    "ConcatDataset", "DataParallel", "DistributedDataParallel", "compile", "to_device", "deepcopy", "copy", "int", "float",
    "str", "Path", "cycle", "islice", "track", "progress_bar", "prepare", "log_progress", "expanduser", "abspath", "fspath",
    "notebook_tqdm",
})  # fmt: skip
PASSES_SELF = frozenset({
    "to", "cuda", "cpu", "float", "half", "double", "eval", "train", "copy", "items", "values", "cache", "prefetch", "batch",
    "shuffle", "repeat", "take", "skip", "map", "with_options", "unbatch", "requires_grad_", "ignore_errors", "apply",
    "as_posix", "resolve", "absolute", "format", "strip", "with_transform", "set_format",
})  # fmt: skip


def origins(program: Program, expr: ast.AST, *, through: bool = True) -> list[ast.expr]:
    """The expressions that a value may come from, wrappers such as `tqdm(x)` and `x.to(device)` taken off if `through`."""
    key = ("origins", expr, through)
    if key in program.memory:
        return program.memory[key]  # type: ignore[return-value]
    ends: list[ast.expr] = []
    program.memory[key] = []  # what comes from itself, such as `x = x[0]`, ends here
    seen: set[tuple[ast.AST, int]] = set()
    todo: list[tuple[ast.AST, int]] = [(expr, -1)]  # an index asks for one part of a tuple
    while todo and len(ends) < _MOST_ENDS and len(seen) < 4 * _MOST_ENDS:
        node, index = todo.pop()
        if (node, index) in seen:
            continue
        seen.add((node, index))
        further = list(_behind(program, node, index, through))
        if further:
            todo.extend(reversed(further))
        elif isinstance(node, ast.expr):
            ends.append(node)
    program.memory[key] = ends
    return ends


def _behind(program: Program, node: ast.AST, index: int, through: bool) -> Iterator[tuple[ast.AST, int]]:
    """One step back; nothing where the way ends."""
    match node:
        case ast.Name():
            bindings = program.bound(node)
            for binding in bindings:
                yield from _from_binding(program, binding, node.id, index)
            if not bindings:
                yield from ((value, index) for value in _imported(program, node))
        case ast.IfExp():
            yield from ((node.body, index), (node.orelse, index))
        case ast.BoolOp():
            yield from ((part, index) for part in node.values)
        case ast.NamedExpr() | ast.Await() | ast.Starred():
            yield node.value, index
        case ast.Tuple() | ast.List() if 0 <= index < len(node.elts):
            yield node.elts[index], -1
        case ast.Attribute():
            yield from ((value, index) for value in _attribute(program, node))
        case ast.Subscript():
            yield from ((value, index) for value in _item(program, node))
        case ast.Call():
            yield from _result(program, node, index, through)


def _from_binding(program: Program, binding: Binding, name: str, index: int) -> Iterator[tuple[ast.AST, int]]:
    if binding.how == "value" and binding.value is not None:
        yield binding.value, index
    elif binding.how == "item" and binding.value is not None:
        yield binding.value, binding.index
    elif binding.how == "parameter" and isinstance(binding.node, FUNCTIONS):
        given = list(_given(program, binding.node, name, binding.index))
        yield from ((value, index) for value in given)
        if binding.value is not None and (not given or len(given) < len(program.callers(binding.node)[:_MOST_CALLERS])):
            yield binding.value, index


def _given(program: Program, function: FunctionNode, name: str, position: int) -> Iterator[ast.expr]:
    """What the calls of a function give for one of its parameters."""
    static = any(isinstance(part, ast.Name) and part.id == "staticmethod" for part in getattr(function, "decorator_list", ()))
    is_method = isinstance(program.parents.get(function), ast.ClassDef) and not static
    for call in program.callers(function)[:_MOST_CALLERS]:
        of_class = isinstance(call.func, ast.Attribute) and isinstance(program.definition(call.func.value), ast.ClassDef)
        found = given(program, call, name, position - (is_method and not of_class))
        if found is not None:
            yield found


def _imported(program: Program, node: ast.Name) -> Iterator[ast.expr]:
    """The value of a name that comes from a neighbour module."""
    module = program.module(node)
    dotted = [module.imports[node.id]] if node.id in module.imports else [f"{star}.{node.id}" for star in module.stars]
    for base, _, name in (one.rpartition(".") for one in dotted):
        if (other := program.neighbours.get(base)) is not None:
            yield from program.values_of(other, name)


def _attribute(program: Program, node: ast.Attribute) -> Iterator[ast.expr]:
    """`self.x`, `CFG.x`, `cfg.x` of an instance, `config.X` of a module, `args.x` of an argument parser."""
    owner: ast.ClassDef | None = None
    if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
        owner = program.class_of(node)
    elif isinstance(node.value, ast.Name | ast.Attribute):
        named = program.definition(node.value)
        owner = named if isinstance(named, ast.ClassDef) else program.class_made(node.value)
    if owner is not None:
        yield from class_attribute(program, owner, node.attr)
        return
    if isinstance(node.value, ast.Name) and (other := program.neighbours.get(program.name(node.value))):
        yield from program.values_of(other, node.attr)
        return
    stored = [value for target, value in program.stored.get(node.attr, ()) if ast.dump(target.value) == ast.dump(node.value)]
    if stored:
        yield from stored[-4:]
    elif (default := parser_defaults(program).get(node.attr)) is not None:
        yield default


def class_attribute(program: Program, owner: ast.ClassDef, name: str, deepest: int = 3) -> list[ast.expr]:
    """The values of an attribute of a class: from its body, from `self.x = …` in its methods, from its bases."""
    found = [binding.value for binding in program.bindings.get((owner, name), ()) if binding.value is not None]
    for target, value in program.stored.get(name, ()):
        inside = isinstance(target.value, ast.Name) and target.value.id in ("self", "cls") and program.class_of(target) is owner
        found += [value] if inside else []
    for base in owner.bases if not found and deepest else ():
        above = program.definition(base)
        if isinstance(above, ast.ClassDef) and above is not owner:
            found += class_attribute(program, above, name, deepest - 1)
    return found[:8]


@remembered
def parser_defaults(program: Program) -> dict[str, ast.expr]:
    """The defaults of command line options by their name in the code."""
    found: dict[str, ast.expr] = {}
    for call in program.calls_to("add_argument"):
        words = {word.arg: word.value for word in call.keywords}
        names = [part.value for part in call.args if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        dest = words.get("dest")
        name = (
            dest.value if isinstance(dest, ast.Constant) else next((n for n in names if n.startswith("--")), (names or [""])[0])
        )
        if isinstance(name, str) and "default" in words:
            found[name.lstrip("-").replace("-", "_")] = words["default"]
    return found


def _item(program: Program, node: ast.Subscript) -> Iterator[ast.expr]:
    """An item of a dictionary or list that is written out, or of `{name: make(name) for name in …}`."""
    key = node.slice.value if isinstance(node.slice, ast.Constant) else UNKNOWN
    for base in origins(program, node.value, through=False):
        if isinstance(base, ast.Dict):
            pairs = list(zip(base.keys, base.values, strict=True))
            same = [value for name, value in pairs if isinstance(name, ast.Constant) and name.value == key]
            yield from same or ([value for _, value in pairs] if key is UNKNOWN else [])
        elif isinstance(base, ast.DictComp):
            yield base.value
        elif isinstance(base, ast.ListComp):
            yield base.elt
        elif isinstance(base, ast.List | ast.Tuple) and isinstance(key, int) and -len(base.elts) <= key < len(base.elts):
            yield base.elts[key]
        elif isinstance(base, ast.Call) and program.name(base) == "dict":
            yield from (word.value for word in base.keywords if word.arg == key)
        elif isinstance(base, ast.Call) and program.name(base) == "vars" and (default := parser_defaults(program).get(str(key))):
            yield default
    if isinstance(node.value, ast.Name):
        yield from _stored_item(program, node.value.id, key)


def _stored_item(program: Program, name: str, key: object) -> list[ast.expr]:
    """What `name[key] = …` puts into a dictionary."""
    some = program.stored_items.get(name, ())[-12:]
    return [value for target, value in some if isinstance(target.slice, ast.Constant) and target.slice.value == key]


def _result(program: Program, call: ast.Call, index: int, through: bool) -> Iterator[tuple[ast.AST, int]]:
    """What a call of a function of this program returns, or what a wrapper was given."""
    target = program.target(call)
    if isinstance(target, ast.Lambda):
        yield target.body, index
    elif isinstance(target, ast.FunctionDef | ast.AsyncFunctionDef):
        for value in returned(program, target):
            yield value, index
    elif target is None and through:
        last = program.last(call)
        if last in PASSES_FIRST and call.args:
            yield call.args[min(max(index, 0), len(call.args) - 1) if last in ("prepare", "zip") else 0], -1
        elif last in PASSES_SELF and isinstance(call.func, ast.Attribute):
            yield call.func.value, index


def returned(program: Program, function: FunctionNode) -> list[ast.expr]:
    """The expressions that a function returns."""
    return [function.body] if isinstance(function, ast.Lambda) else _returns(program).get(function, [])


@remembered
def _returns(program: Program) -> dict[ast.AST, list[ast.expr]]:
    found: dict[ast.AST, list[ast.expr]] = {}
    for node in program.order:
        if isinstance(node, ast.Return) and node.value is not None and (around := program.function(node)) is not None:
            found.setdefault(around, []).append(node.value)
    return found


# Constants ----------------------------------------------------------------------------------------------------------------


def values(program: Program, expr: ast.AST | None) -> list[Any]:
    """The constants an expression may have; `UNKNOWN` stands for every other end."""
    if expr is None:
        return [UNKNOWN]
    key = ("values", expr)
    if key not in program.memory:
        program.memory[key] = [UNKNOWN]  # a value that depends on itself ends here
        found: list[Any] = []
        for one in (_constant(program, end) for end in origins(program, expr)):
            if not any(one is other or (type(one) is type(other) and one == other) for other in found):
                found.append(one)
        program.memory[key] = found or [UNKNOWN]
    return program.memory[key]  # type: ignore[return-value]


def value(program: Program, expr: ast.AST | None) -> Any:
    """The one constant an expression has; UNKNOWN if there are several."""
    found = values(program, expr)
    return found[0] if len(found) == 1 else UNKNOWN


def number(program: Program, expr: ast.AST | None) -> float | None:
    """The largest number an expression may have; None where none is known."""
    found = [one for one in values(program, expr) if isinstance(one, int | float) and not isinstance(one, bool)]
    return max(found, default=None)


def _constant(program: Program, node: ast.AST) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.UnaryOp(op=ast.USub()):
            inner = value(program, node.operand)
            return -inner if isinstance(inner, int | float) else UNKNOWN
        case ast.Tuple() | ast.List() if len(node.elts) <= 16:
            parts = [value(program, part) for part in node.elts]
            return UNKNOWN if any(part is UNKNOWN for part in parts) else tuple(parts)
        case ast.Call(func=ast.Name(id="min"), args=[_, _, *_]):  # at most the smallest that is known
            bounds = [bound for part in node.args if (bound := number(program, part)) is not None]
            return min(bounds, default=UNKNOWN)
        case ast.BinOp():
            return _computed(node.op, value(program, node.left), value(program, node.right))
    return UNKNOWN


def _computed(op: ast.operator, left: Any, right: Any) -> Any:
    if not (isinstance(left, int | float) and isinstance(right, int | float)) or max(abs(left), abs(right)) > 1e12:
        return UNKNOWN
    compute = _OPERATORS.get(type(op))
    return compute(left, right) if compute is not None and (right or type(op) not in (ast.Div, ast.FloorDiv)) else UNKNOWN


_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv, ast.Div:
    operator.truediv,
}  # fmt: skip


def texts(program: Program, expr: ast.AST, deepest: int = 6) -> list[str]:
    """The beginnings of texts an expression may have: constants, and the known part of joined paths and f-strings."""
    found: list[str] = []
    for end in origins(program, expr) if deepest else ():
        match end:
            case ast.Constant() if isinstance(end.value, str):
                found.append(end.value)
            case ast.BinOp(op=ast.Mod()):
                found += texts(program, end.left, deepest - 1)
            case ast.BinOp(op=ast.Add() | ast.Div()):
                between = "/" if isinstance(end.op, ast.Div) else ""
                right = _text(program, end.right, deepest, "")
                found += [f"{left}{between}{right}" for left in texts(program, end.left, deepest - 1)]
            case ast.JoinedStr() if end.values:
                parts = [part.value if isinstance(part, ast.FormattedValue) else part for part in end.values]
                found.append("".join(_text(program, part, deepest) for part in parts))
            case ast.Call():
                found += _call_texts(program, end, deepest)
            case ast.Attribute(attr="parent" | "name"):
                found += texts(program, end.value, deepest - 1)
    return found[:12]


def _text(program: Program, expr: ast.AST, deepest: int, unknown: str = "*") -> str:
    return next(iter(texts(program, expr, deepest - 1)), unknown)


def _call_texts(program: Program, call: ast.Call, deepest: int) -> list[str]:
    """What `os.path.join`, `Path.joinpath` and the functions that list a folder are given."""
    last, receiver = program.last(call), call.func.value if isinstance(call.func, ast.Attribute) else None
    if last in ("join", "joinpath") and call.args:
        first, *rest = call.args if last == "join" or receiver is None else [receiver, *call.args]
        behind = "".join("/" + _text(program, part, deepest) for part in rest)
        return [start.rstrip("/") + behind for start in texts(program, first, deepest - 1)]
    parts = [receiver] if receiver is not None and last in _OF_RECEIVER else []
    parts += call.args[:1] if last in _OF_ARGUMENT else []
    return [text for part in parts for text in texts(program, part, deepest - 1)]


_OF_RECEIVER = ("glob", "rglob", "iterdir", "format")
_OF_ARGUMENT = ("glob", "rglob", "iglob", "listdir", "scandir", "walk", "find_files", "list_files", "Path")


# Arguments ----------------------------------------------------------------------------------------------------------------

MISSING: Final = "missing"


def argument(program: Program, call: ast.Call, name: str, position: int | None = None) -> ast.expr | str | None:
    """The argument of a call by keyword or position; MISSING where it is left out, None where `**options` may hold it."""
    for word in call.keywords:
        if word.arg == name:
            return word.value
    if position is not None and position >= 0:
        if any(isinstance(part, ast.Starred) for part in call.args[: position + 1]):
            return None
        if position < len(call.args):
            return call.args[position]
    options = [_in_options(program, word.value, name) for word in call.keywords if word.arg is None]
    return next((found for found in options if found != MISSING), MISSING)


def _in_options(program: Program, options: ast.expr, name: str) -> ast.expr | str | None:
    """An option in the dictionary behind `**options`: its value, MISSING from all, or None where one is not known."""
    held: list[ast.expr] = []
    unknown = False
    for base in origins(program, options):
        if isinstance(base, ast.Dict) and all(isinstance(key, ast.Constant) for key in base.keys):
            held += [item for key, item in zip(base.keys, base.values, strict=True) if key.value == name]  # type: ignore[union-attr]
        elif isinstance(base, ast.Call) and program.name(base) == "dict" and not base.args:
            held += [word.value for word in base.keywords if word.arg == name]
        else:
            unknown = True
    if isinstance(options, ast.Name):
        held += _stored_item(program, options.id, name)
        unknown = unknown or any(program.text(call.func) == f"{options.id}.update" for call in program.calls_to("update"))
    return held[0] if held else None if unknown else MISSING


def argument_values(program: Program, call: ast.Call, name: str, position: int | None, default: Any) -> list[Any]:
    """The constants an argument may have; `default` where it is left out."""
    found = argument(program, call, name, position)
    if found == MISSING:
        return [default]
    return values(program, found) if isinstance(found, ast.AST) else [UNKNOWN]


def given(program: Program, call: ast.Call, name: str, position: int | None = None) -> ast.expr | None:
    """The argument as an expression; None where it is left out or unknown."""
    found = argument(program, call, name, position)
    return found if isinstance(found, ast.expr) else None
