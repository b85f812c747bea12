"""Expressions to constants, as far as reading can tell: names, class attributes, defaults of parameters and options, arithmetic.

In comes a node, out goes its value or `UNKNOWN`. Nothing is run; what depends on the machine or the data is unknown.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

from unchoke.code.assigning import written
from unchoke.code.node_index import FunctionNode, default_of, parameters
from unchoke.code.source import SourceFile
from unchoke.code.tracing import CallGraph


class Unknown:
    """What cannot be told from the source. False, and equal to nothing but itself."""

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown()
_LARGEST = 10**12
_DEEPEST = 40
_SETTINGS = ("self.hparams", "self.args", "self.cfg", "self.config")  # keep the arguments of __init__ under their names
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_PLAIN_CALLS: dict[str, Callable[..., Any]] = {"int": int, "float": float, "round": round, "min": min, "max": max, "abs": abs}


class Values(CallGraph):
    """Evaluates by looking, with a memory of what it has seen."""

    def __init__(self, source: SourceFile) -> None:
        super().__init__(source)
        self._known_values: dict[ast.AST, Any] = {}
        self._being_valued: set[ast.AST] = set()

    def value(self, node: ast.AST | None) -> Any:
        """The constant that `node` stands for, through constants, defaults and arithmetic; or `UNKNOWN`."""
        if node is None:
            return UNKNOWN
        if node in self._known_values:
            return self._known_values[node]
        if node in self._being_valued or len(self._being_valued) > _DEEPEST:
            return UNKNOWN
        self._being_valued.add(node)
        try:
            found = self._evaluated(node)
        finally:
            self._being_valued.discard(node)
        if not self._being_valued or found is not UNKNOWN:
            self._known_values[node] = found
        return found

    def _evaluated(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name | ast.Attribute):
            return self._value_of_name(node)
        if isinstance(node, ast.BinOp):
            return self._value_of_sum(node)
        if isinstance(node, ast.UnaryOp):
            inner = self.value(node.operand)
            if isinstance(node.op, ast.USub) and isinstance(inner, int | float):
                return -inner
            return (not inner) if isinstance(node.op, ast.Not) and inner is not UNKNOWN else UNKNOWN
        if isinstance(node, ast.Tuple | ast.List):
            return tuple(self.value(item) for item in node.elts)
        if isinstance(node, ast.Subscript):
            return self._value_of_item(node)
        if isinstance(node, ast.IfExp):
            first, second = self.value(node.body), self.value(node.orelse)
            return first if first is not UNKNOWN and first == second else UNKNOWN
        return self._value_of_call(node) if isinstance(node, ast.Call) else UNKNOWN

    def _value_of_sum(self, node: ast.BinOp) -> Any:
        left, right = self.value(node.left), self.value(node.right)
        act = _ARITHMETIC.get(type(node.op))
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        strings = isinstance(left, str) and isinstance(right, str) and isinstance(node.op, ast.Add)
        if act is None or not (numbers or strings):
            return UNKNOWN
        if isinstance(node.op, ast.Pow) and (abs(right) > 64 or abs(left) > 1024):
            return UNKNOWN
        try:
            found = act(left, right)
        except (ArithmeticError, ValueError):
            return UNKNOWN
        if isinstance(found, complex) or (isinstance(found, int | float) and abs(found) > _LARGEST):
            return UNKNOWN
        return found

    def _value_of_call(self, call: ast.Call) -> Any:
        name = self.name(call)
        if name == "len" and len(call.args) == 1:
            inner = self.value(call.args[0])
            return len(inner) if isinstance(inner, tuple) else UNKNOWN
        plain = _PLAIN_CALLS.get(name)
        if plain and call.args and not call.keywords:
            given = [self.value(item) for item in call.args]
            if all(isinstance(item, int | float) for item in given) and (len(given) > 1 or name not in ("min", "max")):
                try:
                    return plain(*given)
                except (TypeError, ValueError, OverflowError):
                    return UNKNOWN
        if name == "?.get" and isinstance(call.func, ast.Attribute) and call.args:
            return self._looked_up(call)
        return UNKNOWN

    def _looked_up(self, call: ast.Call) -> Any:
        """`config.get("bs", 8)`."""
        func = call.func
        key = self.value(call.args[0])
        found = self._dict_item(func.value, key) if isinstance(func, ast.Attribute) else UNKNOWN
        return found if found is not UNKNOWN or len(call.args) < 2 else self.value(call.args[1])

    def _value_of_item(self, node: ast.Subscript) -> Any:
        key = self.value(node.slice)
        if isinstance(key, str):
            assigned = self.latest(node)
            return self.value(assigned) if assigned is not None else self._dict_item(node.value, key)
        whole = self.value(node.value)
        if isinstance(whole, tuple) and isinstance(key, int) and -len(whole) <= key < len(whole):
            return whole[key]
        return UNKNOWN

    def _dict_item(self, holder: ast.expr, key: Any) -> Any:
        item = self.dict_item(holder, key) if isinstance(key, str) else None
        if item is not None:
            return self.value(item)
        made = self.latest(holder)
        if isinstance(made, ast.Call) and isinstance(key, str):
            given = self.argument(made, key)
            return self.value(given) if given is not None else UNKNOWN
        return UNKNOWN

    def _value_of_name(self, node: ast.Name | ast.Attribute) -> Any:
        if isinstance(node, ast.Name):
            own = self._value_of_parameter(node)
            if own is not None:
                return own[0]
        given = self.latest(node)
        if given is not None:
            return self.value(given)
        return self._value_of_attribute(node) if isinstance(node, ast.Attribute) else UNKNOWN

    def _value_of_parameter(self, node: ast.Name) -> tuple[Any] | None:
        """The value of a parameter: what every caller gives, else its default. None if the name is no parameter."""
        scope = self.enclosing_function(node)
        while scope is not None:
            if node.id in parameters(scope):
                if self.assigned(node.id, node) and self.latest(node) is not None and self._reassigned(node, scope):
                    return None
                return (self._given_to(scope, node.id),)
            scope = self.enclosing_function(scope)
        return None

    def _reassigned(self, node: ast.Name, scope: FunctionNode) -> bool:
        return any(given.scope is scope and given.order < self.index.number[node] for given in self.given(node.id))

    def _given_to(self, function: FunctionNode, name: str) -> Any:
        default = self.value(default_of(function, name)) if default_of(function, name) is not None else UNKNOWN
        found = []
        for call in self.callers(function)[:20]:
            given = self.argument_for(call, function, name)
            found.append(self.value(given) if given is not None else default)
        if not found:
            return default
        return found[0] if all(_same(item, found[0]) for item in found) else UNKNOWN

    def _value_of_attribute(self, node: ast.Attribute) -> Any:
        """`CFG.bs`, `args.epochs`, `self.hparams.lr`, `cfg.bs` of a dataclass or namespace."""
        holder = written(node.value)
        ways = (self._class_attribute, self._namespace_item, self._init_default if holder in _SETTINGS else self._option)
        for way in ways:
            found = way(node)
            if found is not UNKNOWN:
                return found
        return self._option(node) if holder == "self.args" else UNKNOWN

    def _namespace_item(self, node: ast.Attribute) -> Any:
        made = self.latest(node.value)
        return self._dict_item(node.value, node.attr) if isinstance(made, ast.Call | ast.Dict) else UNKNOWN

    def _option(self, node: ast.Attribute) -> Any:
        is_own = written(node.value).startswith("self.") and written(node.value) != "self.args"
        return UNKNOWN if is_own else self.options.get(node.attr, UNKNOWN)

    def _class_attribute(self, node: ast.Attribute) -> Any:
        owner = self.classes.get(written(node.value)) or self.assigned_class(node.value)
        if owner is None and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            owner = self.enclosing_class(node)
        return self._attribute_in(owner, node) if owner is not None else UNKNOWN

    def _attribute_in(self, owner: ast.ClassDef, node: ast.Attribute) -> Any:
        for statement in reversed(owner.body):
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            if isinstance(statement, ast.Assign | ast.AnnAssign) and any(written(target) == node.attr for target in targets):
                return self.value(statement.value)
        for given in reversed(self.given(f"self.{node.attr}")):
            if given.owner is owner and given.position is None:
                return self.value(given.value)
        return UNKNOWN

    def _init_default(self, node: ast.Attribute) -> Any:
        owner = self.enclosing_class(node)
        init = self.methods(owner).get("__init__") if owner else None
        return self._given_to(init, node.attr) if init and node.attr in parameters(init) else UNKNOWN

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


def _same(first: Any, second: Any) -> bool:
    return first is second or (type(first) is type(second) and first is not UNKNOWN and bool(first == second))
