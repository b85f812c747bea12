"""Where a value goes: the expressions that hold it, or something made of it.

In comes a call that opens a file or decodes a picture, out go expressions in the same function, in the functions it is handed to and in those it is returned to. It is
asked backwards, of each of them: do you hold what that call made (`flow`)? Numbers about the value (its shape, its mean) do not.
"""

from __future__ import annotations

import ast

from unchoke.code.answers import remembered
from unchoke.code.facts.flow import NONE, CallMarks, Flow, Judge, Marks
from unchoke.code.facts.vocabulary import DECODERS, RASTER_OPENERS
from unchoke.code.program import Program

_OPENERS = DECODERS | RASTER_OPENERS | {"numpy.load", "tiffslide.TiffSlide", "cucim.CuImage"}
_READS = ("read", "ReadAsArray")
_FACTS_OF = frozenset(
    {"shape", "size", "width", "height", "ndim", "dtype", "mode", "count", "meta", "profile", "crs", "bounds", "transform",
     "nbytes", "info", "format", "attrs", "keys", "close", "mean", "std", "min", "max", "sum", "any", "all", "item", "tolist",
     "argmax", "getbbox"}
)  # fmt: skip
_NO_COPY = frozenset(
    {"len", "print", "isinstance", "range", "int", "float", "str", "bool", "type", "hasattr", "id", "repr", "max", "min"}
)


@remembered
def follow(program: Program, call: ast.Call, *, same: bool = False) -> list[ast.expr]:
    """Every expression that holds what a call opened or decoded, itself first. With `same`, not what is made of that."""
    flow = _flow(program, same)
    kinds = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.BinOp)
    nodes = (node for part in _places(program, call) for node in program.within(part, *kinds))
    read = (node for node in nodes if not isinstance(getattr(node, "ctx", None), ast.Store))
    return list(dict.fromkeys([call, *(node for node in read if ("source", call) in flow.at(node))]))


@remembered
def _flow(program: Program, same: bool) -> Flow:
    """One for all that is opened or decoded in the program: what holds one of them is asked only once."""
    opened = [call for call in program.nodes(ast.Call) if program.name(call) in _OPENERS or program.method(call) in _READS]
    return Flow(program, _Holding(program, opened, same=same))


def _places(program: Program, call: ast.Call) -> list[ast.AST]:
    """The function that makes the value, those it calls, and those that call it; a whole cell where there is none."""
    function = program.enclosing_function(call)
    if function is None:
        return [*program.nodes(ast.Module)]
    above = [program.enclosing_function(use) or use for use in program.callers(function)]
    return list(dict.fromkeys([function, *program.reach(function), *above]))


class _Holding(Judge):
    def __init__(self, program: Program, opened: list[ast.Call], *, same: bool) -> None:
        super().__init__(program, *opened)
        self._same = same

    def call(self, flow: Flow, call: ast.Call, handed: CallMarks, /) -> Marks | None:
        method, function = self.program.method(call), self.program.function_of(call)
        if method == "__enter__":
            return handed.receiver
        returned = flow.returned(function) if function is not None and function.name != "__init__" else NONE
        if self._same or self.program.name(call) in _NO_COPY or method in _FACTS_OF:
            return returned
        return handed.all | returned

    def attribute(self, node: ast.Attribute, base: Marks, /) -> Marks:
        return NONE if self._same or node.attr in _FACTS_OF else base

    def subscript(self, _flow: Flow, _node: ast.Subscript, base: Marks, /) -> Marks:
        return NONE if self._same else base
