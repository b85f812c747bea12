"""Masks as formulas: ``(B3-B5)/(B3+B5) > 0`` and arrays in, true and false out.

The text is parsed by Python's own grammar and only the pieces below are understood; nothing is ever executed as code. A pixel
for which the arithmetic has no finite answer, a division by zero above all, is not in the mask, whatever surrounds it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.errors import UsageError, list_some
from unchoke.scenes.scan_scenes import canonical

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
    _quoted: Mapping[str, str] = field(repr=False, compare=False)

    def evaluate(self, bands: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """True where the formula holds; `bands` are arrays of one shape, in physical values. Nothing is warned about."""
        walk = _Walk(self.text, bands, self._quoted)
        with np.errstate(all="ignore"):
            result = walk.value(self._tree)
        holds: NDArray[np.bool_] = np.broadcast_to(np.asarray(result, dtype=np.bool_), bands[self.names[0]].shape)
        return reduce(np.logical_and, walk.defined, holds)


@lru_cache(maxsize=8)
def parse_expression(text: str, names: tuple[str, ...]) -> Expression:
    """Understand `text` as a formula over the bands `names`; what it cannot be is a `UsageError` that says where.

    A band is named as the scene spells it, or with other capitals or zeros (B2, b02); a name that is no single word stands in
    backticks.
    """
    stripped = text.strip()
    if not stripped or len(stripped) > _LONGEST:
        raise _wrong(text, why=f"it has {len(stripped)} characters" if stripped else "it is empty")
    code, quoted = _without_backticks(stripped)
    walk = _Walk(stripped, {name: np.ones(1, np.float32) for name in names}, quoted)
    try:
        tree = ast.parse(code, mode="eval").body
        with np.errstate(all="ignore"):
            result = walk.value(tree)
    except SyntaxError as error:
        raise _wrong(stripped, why=f"it cannot be read{_at(error.offset)}: {error.msg}") from None
    except (RecursionError, MemoryError, ValueError):
        raise _wrong(stripped, why="it is nested too deeply, or holds characters that cannot be read") from None
    if not _is_truth(result):
        raise _wrong(stripped, why="it gives a number, not true or false: compare it with something")
    if not walk.used:
        raise _wrong(stripped, why=f"it names no band; there are {list_some(list(names), limit=20)}")
    return Expression(stripped, tuple(name for name in names if name in walk.used), tree, quoted)


class _Walk:
    """One walk through a formula: its value, the bands it `used`, and in `defined` where the arithmetic had an answer.

    A piece that is not understood raises, so a walk over one pixel is the check of a formula.
    """

    def __init__(self, text: str, bands: Mapping[str, NDArray[Any]], quoted: Mapping[str, str]) -> None:
        self.used: set[str] = set()
        self.defined: list[NDArray[np.bool_]] = []
        self._text, self._bands, self._quoted = text, bands, quoted

    def value(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value=bool()):
                raise self._refused(node, "true and false are no numbers")
            case ast.Constant(value=int() | float() as number):
                return float(number)
            case ast.Name():
                return self._band(node)
            case ast.BinOp(op=ast.BitAnd() | ast.BitOr()):
                return _apply(_LOGIC[type(node.op)], self._truth(node.left), self._truth(node.right))
            case ast.BinOp() if type(node.op) in _ARITHMETIC:
                left, right = self._number(node.left), self._number(node.right)
                # NumPy squares arrays by another way than its general power, which is slower and may differ in the last bit
                is_power = isinstance(node.op, ast.Pow) and isinstance(left, np.ndarray)
                result = left**right if is_power else _apply(_ARITHMETIC[type(node.op)], left, right)
                return self._checked(result) if isinstance(node.op, _UNBOUNDED) else result
            case ast.UnaryOp(op=ast.USub()):
                return _apply(np.negative, self._number(node.operand))
            case ast.UnaryOp(op=ast.UAdd()):
                return self._number(node.operand)
            case ast.UnaryOp(op=ast.Invert() | ast.Not()):
                return _apply(np.logical_not, self._truth(node.operand))
            case ast.BoolOp():
                return reduce(_binary(_LOGIC[type(node.op)]), map(self._truth, node.values))
            case ast.Compare() if all(type(op) in _COMPARISONS for op in node.ops):
                values = [self._number(part) for part in (node.left, *node.comparators)]
                pairs = zip(node.ops, values[:-1], values[1:], strict=True)
                return reduce(_binary(np.logical_and), [_apply(_COMPARISONS[type(op)], one, other) for op, one, other in pairs])
            case ast.Call(func=ast.Name(id=name), keywords=[]):
                return self._call(node, name)
        raise self._refused(node, _UNDERSTOOD)

    def _number(self, node: ast.expr) -> Value:
        value = self.value(node)
        if _is_truth(value):
            raise self._refused(node, "it needs a number")
        return value

    def _truth(self, node: ast.expr) -> Value:
        value = self.value(node)
        if not _is_truth(value):
            raise self._refused(node, "it needs a comparison: put comparisons in parentheses")
        return value

    def _call(self, node: ast.Call, name: str) -> Value:
        if name not in _FUNCTIONS:
            raise self._refused(node, f"the functions are {', '.join(_FUNCTIONS)}")
        function, numbers = _FUNCTIONS[name]
        if len(node.args) not in numbers:
            raise self._refused(node, f"{name} was given {len(node.args)} values")
        values = [self._number(argument) for argument in node.args]
        result = _apply(function, values[0]) if len(values) == 1 else reduce(_binary(function), values)
        return self._checked(result) if function is np.sqrt else result

    def _band(self, node: ast.Name) -> Value:
        written = self._quoted.get(node.id, node.id)
        alike = [written] if written in self._bands else [one for one in self._bands if canonical(one) == canonical(written)]
        if not alike:
            known = list_some(list(self._bands), limit=20)
            raise _wrong(self._text, why=f"unknown band {written}{self._where(node)}; there are {known}")
        self.used.add(alike[0])
        return self._bands[alike[0]]

    def _checked(self, result: Value) -> Value:
        finite = np.isfinite(result)
        if not finite.all():
            self.defined.append(finite)
        return result

    def _refused(self, node: ast.expr, why: str) -> UsageError:
        piece = ast.unparse(node)
        for placeholder, name in self._quoted.items():
            piece = re.sub(rf"\b{placeholder}\b", f"`{name}`", piece)
        return _wrong(self._text, why=f"{piece!r}{self._where(node)} is not understood: {why}")

    def _where(self, node: ast.expr) -> str:
        return "" if self._quoted else _at(node.col_offset + 1)


def _is_truth(value: Value) -> bool:
    return isinstance(value, bool) or (isinstance(value, np.ndarray) and value.dtype == np.bool_)


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
