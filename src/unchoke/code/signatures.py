"""Parameters of a function: their names and defaults."""

from __future__ import annotations

import ast

from unchoke.code.node_index import FunctionNode


def parameters(function: FunctionNode | ast.Lambda) -> list[str]:
    """The names of all parameters, in order."""
    given = function.args
    return [item.arg for item in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def default_of(function: FunctionNode | ast.Lambda, name: str) -> ast.expr | None:
    """The default of one parameter."""
    given = function.args
    plain = [*given.posonlyargs, *given.args]
    for item, default in zip(reversed(plain), reversed(given.defaults), strict=False):
        if item.arg == name:
            return default
    for item, keyword in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        if item.arg == name:
            return keyword
    return None
