"""Masks as formulas: ``(B3-B5)/(B3+B5) > 0`` and arrays in, true and false out.

The text is parsed by Python's own grammar and only the pieces below are understood; nothing is ever executed as code. A pixel
for which the arithmetic has no finite answer, a division by zero above all, is not in the mask, whatever surrounds it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unchoke.core.errors import UsageError, list_some
from unchoke.scenes.scan_scenes import canonical

Kind = Literal["number", "truth"]
Value = NDArray[Any] | float

_LONGEST = 2000
_ARITHMETIC: dict[type[ast.AST], np.ufunc] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.true_divide,
    ast.Pow: np.power,
}
_UNBOUNDED = (ast.Div, ast.Pow)
_COMPARISONS: dict[type[ast.AST], np.ufunc] = {
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
}
_LOGIC: dict[type[ast.AST], np.ufunc] = {
    ast.BitAnd: np.logical_and,
    ast.BitOr: np.logical_or,
    ast.And: np.logical_and,
    ast.Or: np.logical_or,
}
_FUNCTIONS: dict[str, tuple[np.ufunc, range]] = {
    "abs": (np.abs, range(1, 2)),
    "sqrt": (np.sqrt, range(1, 2)),
    "min": (np.minimum, range(2, 100)),
    "max": (np.maximum, range(2, 100)),
}
_UNDERSTOOD = "there are + - * / **, comparisons, & | ~, and, or, not, abs, sqrt, min, max, numbers and bands"


@dataclass(frozen=True)
class Expression:
    """A formula that was understood. `names` are the bands it uses, as the scene spells them, in the scene's order."""

    text: str
    names: tuple[str, ...]
    _tree: ast.expr = field(repr=False, compare=False)
    _spelling: Mapping[str, str] = field(repr=False, compare=False)

    def evaluate(self, bands: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """True where the formula holds; `bands` are arrays of one shape, in physical values. Nothing is warned about."""
        evaluation = _Evaluation(bands, self._spelling)
        with np.errstate(all="ignore"):
            result = evaluation.value(self._tree)
        shape = bands[self.names[0]].shape
        holds: NDArray[np.bool_] = np.broadcast_to(np.asarray(result, dtype=np.bool_), shape)
        return reduce(np.logical_and, evaluation.defined, holds)


def parse_expression(text: str, names: Sequence[str]) -> Expression:
    """Understand `text` as a formula over the bands `names`; what it cannot be is a `UsageError` that says where.

    A band is named as the scene spells it, or with other capitals or zeros (B2, b02); a name that is no single word stands in
    backticks.
    """
    stripped = text.strip()
    if not stripped or len(stripped) > _LONGEST:
        raise _wrong(text, why=f"it has {len(stripped)} characters" if stripped else "it is empty")
    code, quoted = _without_backticks(stripped)
    checker = _Checker(stripped, tuple(names), quoted)
    try:
        tree = ast.parse(code, mode="eval").body
        kind = checker.kind(tree)
    except SyntaxError as error:
        raise _wrong(stripped, why=f"it cannot be read{_at(error.offset)}: {error.msg}") from None
    except (RecursionError, MemoryError, ValueError):
        raise _wrong(stripped, why="it is nested too deeply, or holds characters that cannot be read") from None
    if kind != "truth":
        raise _wrong(stripped, why="it gives a number, not true or false: compare it with something")
    if not checker.used:
        raise _wrong(stripped, why=f"it names no band; there are {list_some(list(names), limit=20)}")
    return Expression(stripped, tuple(name for name in names if name in checker.used.values()), tree, checker.used)


class _Checker:
    """Finds out whether a formula is sound: what each piece gives, and which bands are `used` (as written → as spelt)."""

    def __init__(self, text: str, names: tuple[str, ...], quoted: Mapping[str, str]) -> None:
        self.used: dict[str, str] = {}
        self._text = text
        self._names = names
        self._quoted = quoted

    def kind(self, node: ast.expr) -> Kind:
        """What the piece gives; a piece that is not understood raises."""
        match node:
            case ast.Constant(value=bool()):
                raise self._refused(node, "true and false are no numbers")
            case ast.Constant(value=int() | float()):
                return "number"
            case ast.Name():
                return self._band(node)
            case ast.BinOp(op=ast.BitAnd() | ast.BitOr()):
                return self._need("truth", node.left, node.right)
            case ast.BinOp() if type(node.op) in _ARITHMETIC:
                return self._need("number", node.left, node.right)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
                return self._need("number", node.operand)
            case ast.UnaryOp(op=ast.Invert() | ast.Not()):
                return self._need("truth", node.operand)
            case ast.BoolOp():
                return self._need("truth", *node.values)
            case ast.Compare() if all(type(op) in _COMPARISONS for op in node.ops):
                self._need("number", node.left, *node.comparators)
                return "truth"
            case ast.Call(func=ast.Name(id=name), keywords=[]):
                return self._call(node, name)
        raise self._refused(node, _UNDERSTOOD)

    def _need(self, wanted: Kind, *nodes: ast.expr) -> Kind:
        for node in nodes:
            if self.kind(node) != wanted:
                hint = "it needs a comparison: put comparisons in parentheses" if wanted == "truth" else "it needs a number"
                raise self._refused(node, hint)
        return wanted

    def _call(self, node: ast.Call, name: str) -> Kind:
        if name not in _FUNCTIONS:
            raise self._refused(node, f"the functions are {', '.join(_FUNCTIONS)}")
        if len(node.args) not in _FUNCTIONS[name][1]:
            raise self._refused(node, f"{name} was given {len(node.args)} values")
        return self._need("number", *node.args)

    def _band(self, node: ast.Name) -> Kind:
        written = self._quoted.get(node.id, node.id)
        exact = [name for name in self._names if name == written]
        alike = exact or [name for name in self._names if canonical(name) == canonical(written)]
        if not alike:
            known = list_some(list(self._names), limit=20)
            raise _wrong(self._text, why=f"unknown band {written}{self._where(node)}; there are {known}")
        self.used[node.id] = alike[0]
        return "number"

    def _refused(self, node: ast.expr, why: str) -> UsageError:
        piece = ast.unparse(node)
        for placeholder, name in self._quoted.items():
            piece = re.sub(rf"\b{placeholder}\b", f"`{name}`", piece)
        return _wrong(self._text, why=f"{piece!r}{self._where(node)} is not understood: {why}")

    def _where(self, node: ast.expr) -> str:
        return "" if self._quoted else _at(node.col_offset + 1)


class _Evaluation:
    """One walk through a sound formula; `defined` collects where the arithmetic had an answer."""

    def __init__(self, bands: Mapping[str, NDArray[Any]], spelling: Mapping[str, str]) -> None:
        self.defined: list[NDArray[np.bool_]] = []
        self._bands = bands
        self._spelling = spelling

    def value(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value=int() | float() as number):
                return float(number)
            case ast.Name():
                return self._bands[self._spelling[node.id]]
            case ast.BinOp(op=ast.BitAnd() | ast.BitOr()):
                return _apply(_LOGIC[type(node.op)], self.value(node.left), self.value(node.right))
            case ast.BinOp():
                left, right = self.value(node.left), self.value(node.right)
                # NumPy squares arrays by another way than its general power, which is slower and may differ in the last bit
                is_power = isinstance(node.op, ast.Pow) and isinstance(left, np.ndarray)
                result = left**right if is_power else _apply(_ARITHMETIC[type(node.op)], left, right)
                return self._checked(result) if isinstance(node.op, _UNBOUNDED) else result
            case ast.UnaryOp(op=ast.USub()):
                return _apply(np.negative, self.value(node.operand))
            case ast.UnaryOp(op=ast.UAdd()):
                return self.value(node.operand)
            case ast.UnaryOp():
                return _apply(np.logical_not, self.value(node.operand))
            case ast.BoolOp():
                return reduce(lambda left, right: _apply(_LOGIC[type(node.op)], left, right), map(self.value, node.values))
            case ast.Compare():
                return self._compare(node)
            case ast.Call(func=ast.Name(id=name)):
                values = [self.value(argument) for argument in node.args]
                function = _FUNCTIONS[name][0]
                result = _apply(function, values[0]) if len(values) == 1 else reduce(_binary(function), values)
                return self._checked(result) if function is np.sqrt else result
        raise AssertionError(f"a piece that was not checked: {ast.dump(node)}")

    def _compare(self, node: ast.Compare) -> Value:
        values = [self.value(part) for part in (node.left, *node.comparators)]
        pairs = zip(node.ops, values[:-1], values[1:], strict=True)
        return reduce(_binary(np.logical_and), [_apply(_COMPARISONS[type(op)], left, right) for op, left, right in pairs])

    def _checked(self, result: Value) -> Value:
        finite = np.isfinite(result)
        if not finite.all():
            self.defined.append(finite)
        return result


def _apply(function: np.ufunc, *values: Value) -> Value:
    """Plain numbers stay plain, so that they take the arrays' precision, as they do when the formula is typed into NumPy."""
    result: Any = function(*values)
    return result if isinstance(result, np.ndarray) else result.item()


def _binary(function: np.ufunc) -> Callable[[Value, Value], Value]:
    return lambda left, right: _apply(function, left, right)


def _without_backticks(text: str) -> tuple[str, dict[str, str]]:
    """The text with each name in backticks replaced by a word, and what each word stands for."""
    quoted: dict[str, str] = {}

    def replace(match: re.Match[str]) -> str:
        word = f"_band_{len(quoted)}_"
        quoted[word] = match[1]
        return word

    return re.sub(r"`([^`]+)`", replace, text), quoted


def _at(offset: int | None) -> str:
    return f" at character {offset}" if offset else ""


def _wrong(text: str, *, why: str) -> UsageError:
    shown = text if len(text) <= 120 else f"{text[:117]}..."
    return UsageError(
        f"the mask {shown!r} is no formula over the bands", code="bad-mask-formula", why=why, try_="--mask '(B3-B5)/(B3+B5) > 0'"
    )
