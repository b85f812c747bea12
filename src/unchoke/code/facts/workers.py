"""Which loaders have worker processes, and which code runs when a script is imported. For the rules about processes."""

from __future__ import annotations

import ast

from unchoke.code.constant_values import UNKNOWN
from unchoke.code.facts.loaders import Loader
from unchoke.code.program import Program


def has_workers(program: Program, loader: Loader) -> bool | None:
    """True with worker processes, False without, None where it cannot be told; `**options` are looked into."""
    if loader.workers_node is not None:
        return loader.has_workers if loader.has_workers is not None else _of_choice(program, loader.workers_node)
    makers = [call for call in (loader.maker, loader.call) if call is not None]
    spread = [keyword.value for call in makers for keyword in call.keywords if keyword.arg is None]
    if not spread:
        return loader.has_workers
    found = [_in_options(program, node) for node in spread]
    return next((answer for answer in found if answer is True), None if None in found else False)


def _of_choice(program: Program, node: ast.expr) -> bool | None:
    """`8 if gpu else 2` has workers either way."""
    chosen = node if isinstance(node, ast.IfExp) else program.latest(node)
    if not isinstance(chosen, ast.IfExp):
        return None
    first, second = program.value(chosen.body), program.value(chosen.orelse)
    known = isinstance(first, int) and isinstance(second, int)
    return bool(first) if known and bool(first) == bool(second) else None


def _in_options(program: Program, node: ast.expr) -> bool | None:
    """What a dict of options says about `num_workers`."""
    made = node if isinstance(node, ast.Dict | ast.IfExp | ast.Call) else program.latest(node)
    if isinstance(made, ast.IfExp):
        answers = {_in_options(program, made.body), _in_options(program, made.orelse)}
        return True if True in answers else None if None in answers else False
    value: ast.expr | None = None
    if isinstance(made, ast.Dict):
        if any(key is None for key in made.keys):
            return None
        value = next(
            (item for key, item in zip(made.keys, made.values, strict=True) if program.value(key) == "num_workers"), None
        )
    elif isinstance(made, ast.Call) and program.name(made) == "dict":
        value = program.argument(made, "num_workers")
    else:
        return None
    if value is None:
        return None if _is_filled_later(program, node) else False
    found = program.value(value)
    return None if found is UNKNOWN else bool(found)


def _is_filled_later(program: Program, node: ast.expr) -> bool:
    """`options.update(cuda_options)` or `options["num_workers"] = 4`."""
    name = program.written(node)
    updated = any(
        program.method(call) == "update" and program.written(program.receiver(call)) == name for call in program.nodes(ast.Call)
    )
    kept = (item for item in program.nodes(ast.Subscript) if isinstance(item.ctx, ast.Store))
    return updated or any(program.written(item.value) == name for item in kept)


def runs_at_import(program: Program, node: ast.AST) -> bool:
    """Is it at module level, outside `if __name__ == "__main__":`?"""
    return program.enclosing_scope(node) is None and not program.in_main_guard(node)
