"""Which calls run the author's own code that was not read: of a module or script elsewhere, or of a cell that does not parse.

In comes a call, out goes yes or no. Who says that something is never done (nothing is saved, nothing is freed) asks this of the
calls that could do it. Functions of libraries are not meant: what those do is known or does not matter.
"""

from __future__ import annotations

import ast
import builtins

from unchoke.code.facts.vocabulary import role_of
from unchoke.code.node_index import arguments, names_in, parameters
from unchoke.code.program import Program
from unchoke.code.unread import ANY_NAME

_DEEPEST = 3


def may_save(program: Program, call: ast.Call) -> bool:
    """Unseen code that is handed a network, and whose name does not say that it only trains or evaluates it."""
    if not program.unread or role_of(program.method(call)) in ("train", "eval") or not is_unseen(program, call):
        return False
    networks = {program.written(other.func) for other in program.facts.forwards} - {""}
    return any(program.facts.is_network(item) or program.written(item) in networks for item in arguments(call))


def hides_code(program: Program) -> bool:
    """Is there code that was not read and may do anything: a star import, `%run`, or a cell that does not parse?"""
    return any(ANY_NAME in piece.names for piece in program.unread)


def is_unseen(program: Program, call: ast.Call) -> bool:
    """Does this call run code that belongs to the program and was not read?"""
    if not program.unread or program.function_of(call) is not None:
        return False
    at: ast.AST = call.func
    while isinstance(at, ast.Attribute | ast.Subscript | ast.Call):
        at = at.func if isinstance(at, ast.Call) else at.value
    return isinstance(at, ast.Name) and _is_from_unread(program, at, 0)


def _is_from_unread(program: Program, name: ast.Name, depth: int) -> bool:
    """Was it imported from there, or made of what was, or does nothing that was read say what it is?"""
    dotted = program.name(name)
    if any(piece.name and (dotted == piece.name or dotted.startswith(f"{piece.name}.")) for piece in program.unread):
        return True
    if "." in dotted or name.id in program.functions or name.id in program.classes or hasattr(builtins, name.id):
        return False
    function = program.enclosing_function(name)
    if function is not None and name.id in parameters(function):
        return False
    loops = [loop for loop in program.loops_around(name) if isinstance(loop, ast.For | ast.AsyncFor)]
    values = [*program.assigned(name.id, name), *(loop.iter for loop in loops if name.id in names_in(loop.target))]
    if not values:
        return hides_code(program)
    inner = (part for value in values for part in program.within(value, ast.Name))
    return depth < _DEEPEST and any(part.id != name.id and _is_from_unread(program, part, depth + 1) for part in inner)
