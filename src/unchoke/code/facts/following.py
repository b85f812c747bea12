"""Where a value goes: the expressions that hold it, or something made of it.

In comes a call that opens a file or decodes a picture, out go expressions in the same function, in the functions it is handed to
and in those it is returned to. It is asked backwards, of each of them: do you hold what that call made (`flow`)? Numbers about
the value (its shape, its mean) do not.
"""

from __future__ import annotations

import ast

from unchoke.code.answers import remembered
from unchoke.code.facts.flow import NONE, Flow, Marks
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
    flow = _holding(program, same)
    kinds = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.BinOp)
    nodes = (node for part in _places(program, call) for node in program.within(part, *kinds))
    read = (node for node in nodes if not isinstance(getattr(node, "ctx", None), ast.Store))
    return list(dict.fromkeys([call, *(node for node in read if ("opened", call) in flow.ask(node))]))


def _places(program: Program, call: ast.Call) -> list[ast.AST]:
    """The function that makes the value, those it calls, and those that call it; a whole cell where there is none."""
    function = program.enclosing_function(call)
    if function is None:
        return [*program.nodes(ast.Module)]
    above = [program.enclosing_function(use) or use for use in program.callers(function)]
    return list(dict.fromkeys([function, *program.reach(function), *above]))


class _Holding(Flow):
    """All that is opened or decoded in the program is followed at once: each expression is asked only once."""

    def __init__(self, program: Program, same: bool) -> None:
        super().__init__(program)
        self._same = same

    def judged(self, call: ast.Call, /) -> Marks:
        name, method, function = self.program.name(call), self.program.method(call), self.program.function_of(call)
        found: Marks = frozenset({("opened", call)} if name in _OPENERS or method in _READS else ())
        if method == "__enter__":
            return found | self.receiver(call)
        if function is not None and function.name != "__init__":
            found |= self.returned(function)
        if self._same or name in _NO_COPY or method in _FACTS_OF:
            return found
        return found | self.receiver(call) | self.given(call)

    def part(self, node: ast.Attribute, /) -> Marks:
        return NONE if self._same or node.attr in _FACTS_OF else self.ask(node.value)

    def subscript(self, node: ast.Subscript, /) -> Marks:
        return NONE if self._same else self.ask(node.value)


_holding = remembered(_Holding)
