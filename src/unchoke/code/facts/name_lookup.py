"""Calls by the last part of their name, uses and additions of a variable by its name: worked out once for a program.

In comes a program, out go nodes in file order. Judges nothing.
"""

from __future__ import annotations

import ast
from weakref import WeakKeyDictionary

from unchoke.code.program import Program

_ADDING = ("append", "extend", "insert")


class _Lookup:
    def __init__(self, program: Program) -> None:
        self.calls: dict[str, list[ast.Call]] = {}
        self.loads: dict[str, list[ast.Name]] = {}
        self.added: dict[str, list[tuple[ast.AST, ast.expr]]] = {}
        self.set_on: dict[str, list[ast.expr]] = {}
        for call in program.nodes(ast.Call):
            method = program.method(call)
            self.calls.setdefault(method, []).append(call)
            if method in _ADDING and call.args:
                self.added.setdefault(program.written(program.receiver(call)), []).append((call, call.args[-1]))
        for name in program.nodes(ast.Name):
            if isinstance(name.ctx, ast.Load):
                self.loads.setdefault(name.id, []).append(name)
        for more in program.nodes(ast.AugAssign):
            self.added.setdefault(program.written(more.target), []).append((more, more.value))
        for given in program.nodes(ast.Assign):
            for target in given.targets:
                if isinstance(target, ast.Attribute) and program.written(target.value) != "self":
                    self.set_on.setdefault(target.attr, []).append(given.value)


_LOOKUPS: WeakKeyDictionary[Program, _Lookup] = WeakKeyDictionary()


def _lookup(program: Program) -> _Lookup:
    if program not in _LOOKUPS:
        _LOOKUPS[program] = _Lookup(program)
    return _LOOKUPS[program]


def calls_named(program: Program, *methods: str) -> list[ast.Call]:
    """All calls whose name ends in one of these."""
    found = _lookup(program).calls
    return [call for method in methods for call in found.get(method, ())]


def loads_of(program: Program, name: str) -> list[ast.Name]:
    """All places that read a variable of this name."""
    return _lookup(program).loads.get(name, [])


def set_from_outside(program: Program, attribute: str) -> list[ast.expr]:
    """What `data.transform = …` gives to an attribute of this name, on anything but `self`."""
    return _lookup(program).set_on.get(attribute, [])


def added_to(program: Program, name: str) -> list[tuple[ast.AST, ast.expr]]:
    """What `x += …` and `x.append(…)` add to a variable, as written."""
    return _lookup(program).added.get(name, [])
