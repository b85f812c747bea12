"""Expressions to constants, as far as reading can tell: names, class attributes, defaults of parameters and options, arithmetic.

In comes a node, out goes its value or `UNKNOWN`, or all values it may have where branches differ. Nothing is run; what depends on
the machine or the data is unknown.
"""

from __future__ import annotations

import ast
import itertools
import operator
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

from unchoke.code.bindings import Binding, written
from unchoke.code.node_index import Answers, is_none
from unchoke.code.source import SourceFile
from unchoke.code.tracing import RUNNING, CallGraph, Choices


class Unknown:
    """What cannot be told from the source. False, and equal to nothing but itself."""

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown()
_LARGEST = 10**12
_DEEPEST = 40
_MOST = 12  # values told apart
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
}  # fmt: skip
_PLAIN_CALLS: dict[str, Callable[..., Any]] = {"int": int, "float": float, "round": round, "min": min, "max": max, "abs": abs}


Possible = tuple[Any, ...]
_NOTHING: Possible = (UNKNOWN,)


class Values(CallGraph):
    """Evaluates by looking, with a memory of what it has seen."""

    def __init__(self, source: SourceFile) -> None:
        super().__init__(source)
        self._values: Answers[Possible] = Answers(_NOTHING, _DEEPEST)

    def value(self, node: ast.AST | None) -> Any:
        """The one constant that `node` stands for, through constants, defaults and arithmetic; or `UNKNOWN`."""
        return one_of(self.values(node))

    def values(self, node: ast.AST | None) -> Possible:
        """All constants that `node` may be, branches joined; `UNKNOWN` is among them where it may be something else."""
        return self._values.of(node, self._evaluated) if node is not None else _NOTHING

    def values_of(self, given: Choices, default: Any = UNKNOWN) -> Possible:
        """All that these may be; `default` where there may be none."""
        found = [self.values(node) for node in given.nodes]
        return _joined(*found, (default,) if given.absent else (), _NOTHING if given.unknown else ())

    def _evaluated(self, node: ast.AST) -> Possible:
        if isinstance(node, ast.Constant):
            return (node.value,)
        if isinstance(node, ast.Name | ast.Attribute):
            return self._of_name(node)
        if isinstance(node, ast.BinOp):
            act = _ARITHMETIC.get(type(node.op))
            pairs = itertools.product(self.values(node.left), self.values(node.right))
            return _joined(*((_sum(act, left, right),) for left, right in pairs)) if act is not None else _NOTHING
        if isinstance(node, ast.UnaryOp):
            return _joined(*((_denied(node.op, inner),) for inner in self.values(node.operand)))
        if isinstance(node, ast.Tuple | ast.List):
            return (tuple(self.value(item) for item in node.elts),)
        if isinstance(node, ast.Subscript):
            return self._of_item(node)
        if isinstance(node, ast.IfExp):
            return _joined(self.values(node.body), self.values(node.orelse))
        return self._of_call(node) if isinstance(node, ast.Call) else _NOTHING

    def _of_call(self, call: ast.Call) -> Possible:
        name = self.name(call)
        if name == "len" and len(call.args) == 1:
            inner = self.value(call.args[0])
            return (len(inner),) if isinstance(inner, tuple) else _NOTHING
        plain = _PLAIN_CALLS.get(name)
        if plain and call.args and not call.keywords and (len(call.args) > 1 or name not in ("min", "max")):
            given = itertools.product(*(self.values(item) for item in call.args))
            return _joined(*((_applied(plain, items),) for items in itertools.islice(given, _MOST)))
        if name == "?.get" and isinstance(call.func, ast.Attribute) and call.args:
            key = self.value(call.args[0])
            found = self._items(call.func.value, key, call) if isinstance(key, str) else _NOTHING
            return self.values(call.args[1]) if found == _NOTHING and len(call.args) > 1 else found
        function = self.function_of(call)
        if function is None or function.name in RUNNING:
            return _NOTHING
        returned = [back.value for back in self.returns(function)]
        return _joined(*(self.values(item) for item in returned)) if returned else _NOTHING

    def _of_item(self, node: ast.Subscript) -> Possible:
        key = self.value(node.slice)
        if isinstance(key, str):
            return self._items(node.value, key, node)
        whole = self.value(node.value)
        if isinstance(whole, tuple) and isinstance(key, int) and -len(whole) <= key < len(whole):
            return (whole[key],)
        return _NOTHING

    def _items(self, holder: ast.expr, key: str, at: ast.AST) -> Possible:
        found = self.entry(holder, key, at)
        if not found.unknown or len(found.nodes) > 0:
            return self.values_of(found)
        return _joined(*(self._made_attribute(made, key) for made in self.choices(holder).nodes)) or _NOTHING

    def _of_name(self, node: ast.Name | ast.Attribute) -> Possible:
        bound = self.reaching(node)
        found = _joined(*(self._of_binding(item, node) for item in bound))
        if isinstance(node, ast.Name):
            return found or _NOTHING
        if bound and any(self._is_certain(item.node, node) for item in bound):
            return found
        base = self._of_attribute(node)
        return found if base == _NOTHING and found else _joined(found, base)

    def _of_binding(self, bound: Binding, at: ast.Name | ast.Attribute) -> Possible:
        if bound.how == "handed" and isinstance(at, ast.Name):
            given = self.handed(at.id, at)
            return _joined(*(self.values(item) for item in given)) or _NOTHING
        return self.values(self.given_value(bound)) if bound.how == "given" else _NOTHING

    def _of_attribute(self, node: ast.Attribute) -> Possible:
        """`CFG.bs`, `args.epochs`, `cfg.bs` of a dataclass or namespace."""
        name = written(node.value)
        if name in ("self", "cls"):
            owner = self.enclosing_class(node)
            return self._class_attribute(owner, node.attr) if owner is not None else _NOTHING
        holders = self.choices(node.value)
        found = _joined(*(self._made_attribute(made, node.attr) for made in holders.nodes), _NOTHING if holders.unknown else ())
        if found and found != _NOTHING:
            return found
        foreign = holders.nodes and not any(isinstance(made, ast.Name | ast.Attribute) for made in holders.nodes)
        other = (name.startswith("self.") and name != "self.args") or (foreign and not holders.unknown)
        return _NOTHING if other else (self.options.get(node.attr, UNKNOWN),)

    def _made_attribute(self, made: ast.expr, name: str) -> Possible:
        """An attribute of a class, of what a class or a namespace was made with, or of parsed options."""
        if isinstance(made, ast.Name | ast.Attribute):
            owner = self.classes.get(written(made))
            return self._class_attribute(owner, name) if owner is not None else _NOTHING
        if not isinstance(made, ast.Call):
            return _NOTHING
        owner = self.classes.get(written(made.func))
        if owner is not None:
            return self._of_instance(made, owner, name)
        if self.method(made).startswith("parse_"):
            return (self.options.get(name, UNKNOWN),)
        named = self.option(made, name)
        if named.nodes:
            return self.values_of(named)
        return self.values_of(self.entry(made.args[0], name)) if len(made.args) == 1 else _NOTHING

    def _of_instance(self, made: ast.Call, owner: ast.ClassDef, name: str) -> Possible:
        """What an object has under a name: given where it was made (dataclasses too), set by its class, or the class's own."""
        fields = [written(item.target) for item in owner.body if isinstance(item, ast.AnnAssign)]
        if "__init__" not in self.methods(owner):
            given = self.option(made, name, fields.index(name) if name in fields else None)
            if given.nodes:
                return self.values_of(given)
        return self._class_attribute(owner, name)

    def _class_attribute(self, owner: ast.ClassDef, name: str, depth: int = 0) -> Possible:
        """Of the class body, of what methods give to `self`, else of the bases in this file."""
        own = [*self.bindings.within(name, owner), *self.bindings.within(f"self.{name}", owner)]
        if own:
            plain = [item for item in own if item.how != "given" or not is_none(item.value)] or own
            return _joined(*(self.values(self.given_value(item)) if item.how == "given" else _NOTHING for item in plain))
        bases = [self.classes[written(base)] for base in owner.bases if written(base) in self.classes]
        found = [self._class_attribute(base, name, depth + 1) for base in bases if base is not owner and depth < 6]
        return next((item for item in found if item != _NOTHING), _NOTHING)

    def rests_on_option(self, node: ast.AST | None) -> bool:
        """Is it the default of a command-line option, which the person who starts the program may change?"""
        found = self.choices(node).nodes
        return any(isinstance(item, ast.Attribute) and item.attr in self.options for item in found)

    @cached_property
    def options(self) -> dict[str, Any]:
        """Defaults of command-line options by the name they are read by."""
        found: dict[str, Any] = {}
        for call in self.calls_to("add_argument", "option"):
            name = self._option_name(call)
            if name:
                found[name] = self._option_default(call)
        return found

    def _option_name(self, call: ast.Call) -> str:
        dest = self.argument(call, "dest")
        names = [item.value for item in call.args if isinstance(item, ast.Constant) and isinstance(item.value, str)]
        long = [name for name in names if name.startswith("--")] or names
        chosen = self.value(dest) if dest is not None else (long[0] if long else "")
        return chosen.lstrip("-").replace("-", "_") if isinstance(chosen, str) else ""

    def _option_default(self, call: ast.Call) -> Any:
        default = self.argument(call, "default")
        if default is not None:
            return self.value(default)
        action = self.value(self.argument(call, "action"))
        return {"store_true": False, "store_false": True}.get(action, UNKNOWN) if isinstance(action, str) else UNKNOWN


def one_of(found: Possible) -> Any:
    """The only one of several possible values, or `UNKNOWN`."""
    return found[0] if len(found) == 1 else UNKNOWN


def is_number(value: Any) -> bool:
    """Is it a number, and no truth?"""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _joined(*found: Possible) -> Possible:
    """All of them, each once; too many to tell apart are unknown."""
    joined: list[Any] = []
    for item in itertools.chain.from_iterable(found):
        if not any(item is other or (type(item) is type(other) and bool(item == other)) for other in joined):
            joined.append(item)
    return tuple(joined) if len(joined) <= _MOST else _NOTHING


def _denied(op: ast.unaryop, inner: Any) -> Any:
    if isinstance(op, ast.USub) and isinstance(inner, int | float):
        return -inner
    return (not inner) if isinstance(op, ast.Not) and inner is not UNKNOWN else UNKNOWN


def _sum(act: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    if isinstance(left, str) and isinstance(right, str) and act is operator.add:
        return left + right
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    if not numbers or (act is operator.pow and (abs(right) > 64 or abs(left) > 1024)):
        return UNKNOWN
    found = _applied(act, (left, right))
    return UNKNOWN if isinstance(found, complex) or (found is not UNKNOWN and abs(found) > _LARGEST) else found


def _applied(act: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    try:
        return act(*given) if all(isinstance(item, int | float) for item in given) else UNKNOWN
    except (TypeError, ValueError, ArithmeticError):
        return UNKNOWN
