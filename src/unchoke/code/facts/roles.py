"""What a loader is for, by its use: looped over where the program trains or evaluates, or given to a function that tells."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from unchoke.code.constant_values import Valued
from unchoke.code.facts.loops import Loop, unwrapped
from unchoke.code.facts.source_text import Role, role_of

_EVALUATED_OPTIONS = ("validation_data", "val_dataloaders", "val_loader", "valid_dl")


def role_by_use(program: Valued, names: Iterable[str], training: list[Loop], is_evaluated: Callable[[ast.AST], bool]) -> Role:
    """The role of a loader kept in variables of these names."""
    for name in names:
        if any(isinstance(loop.node, ast.For) and _is_over(program, loop.node, name) for loop in training):
            return "train"
        for part in program.names(name):
            role = _told_by(program, part, is_evaluated) if isinstance(part.ctx, ast.Load) else "unknown"
            if role != "unknown":
                return role
    return "unknown"


def _is_over(program: Valued, loop: ast.For, name: str) -> bool:
    looped = (loop.iter, unwrapped(program, loop.iter))
    return any(program.written(part) == name for node in looped for part in program.within(node, ast.Name, ast.Attribute))


def _told_by(program: Valued, part: ast.Name, is_evaluated: Callable[[ast.AST], bool]) -> Role:
    parent = program.parent(part)
    if isinstance(parent, ast.keyword) and parent.arg in _EVALUATED_OPTIONS:
        return "eval"
    if is_evaluated(part):
        return "eval"
    return role_of(program.method(parent)) if isinstance(parent, ast.Call) else "unknown"
