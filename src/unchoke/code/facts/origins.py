"""Where a value comes from, and does it change from sample to sample?

In comes an expression, out go its grounds: the parameters, loops and random draws it rests on, through variables and calls in the
file. Every assignment of a name counts, whichever runs; what cannot be told is taken to change, so that rules stay silent. With
it go the small steps of such a search: the root of a chain, the last assignment before a place, what was added to a list.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal
from weakref import WeakKeyDictionary

from unchoke.code.bindings import Binding
from unchoke.code.facts.per_sample import SampleFunction, is_random_number
from unchoke.code.node_index import FunctionNode, LoopNode, names_in, parameters
from unchoke.code.program import Program

Scope = FunctionNode | ast.Lambda | None
_BINDING = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.withitem, ast.For, ast.AsyncFor, ast.comprehension)
_OWN = ("self", "cls")
_MOST = 40  # assignments behind one expression
_ADDING = ("append", "extend", "insert")


@dataclass(frozen=True)
class Ground:
    """A parameter of a function (`node` is the function), a loop over something, a random draw, a counter kept on `self`."""

    kind: Literal["parameter", "loop", "random", "counter"]
    node: ast.AST
    name: str = ""


def grounds(program: Program, node: ast.AST, *, without: frozenset[str] = frozenset(), everywhere: bool = False) -> set[Ground]:
    """All that the value of `node` rests on. Names in `without` are not followed, variables of the file only if `everywhere`."""
    walk = _BackwardWalk(program, without, at_module=everywhere or program.enclosing_scope(node) is None)
    walk.expression(node)
    return walk.found


def is_of_sample(program: Program, node: ast.AST, *, without: frozenset[str] = frozenset(), random: bool = True) -> bool:
    """Does this expression change from one sample to the next? With `random=False` a random draw alone does not count."""
    return any(_changes(program, ground, random=random) for ground in grounds(program, node, without=without))


def per_sample_records(program: Program) -> list[SampleFunction]:
    """The per-sample functions of the file, and the generators that a function makes: `from_generator(samples(ids))`."""
    return list(_known(program).roots.values())


def record_at(program: Program, node: ast.AST) -> SampleFunction | None:
    """The record of the per-sample code that `node` is in, directly or through calls."""
    found = program.facts.in_per_sample(node)
    function = program.enclosing_function(node)
    return found if found is not None or function is None else _known(program).reached.get(function)


def is_random(program: Program, node: ast.AST) -> bool:
    """Does it rest on a random draw?"""
    return any(ground.kind == "random" for ground in grounds(program, node))


def runs_for_each_sample(program: Program, node: ast.AST) -> SampleFunction | None:
    """The record of the per-sample code that runs `node` for every sample: not before a generator's loop, not in an `except`."""
    record = record_at(program, node)
    if record is None or any(isinstance(above, ast.ExceptHandler) for above in _within_function(program, node)):
        return None
    return record if _each_round(program, node, set()) else None


def bindings(program: Program, scope: Scope, name: str) -> list[tuple[ast.AST, ast.expr]]:
    """The statements that give `name` a value in this scope, each with the expression it comes from."""
    return _known(program).bound.get((scope, name), [])


class _ProgramOrigins:
    """What is worked out once for a program."""

    def __init__(self, program: Program) -> None:
        self.roots: dict[ast.AST, SampleFunction] = {record.function: record for record in program.facts.per_sample}
        self.reached: dict[ast.AST, SampleFunction] = {}
        for made in _made_generators(program):
            if made not in self.roots:
                self.roots[made] = SampleFunction(made, "generator")
                self.reached.update(dict.fromkeys((made, *program.reach(made)), self.roots[made]))
        self.bound: dict[tuple[ast.AST | None, str], list[tuple[ast.AST, ast.expr]]] = {}
        for node in program.nodes(*_BINDING):
            for name, value in _pairs(node):
                self.bound.setdefault((program.index.scope(node), name), []).append((node, value))
        counted = (item for item in program.nodes(ast.AugAssign) if program.written(item.target).startswith("self."))
        inside = (item for item in counted if program.facts.in_per_sample(item) is not None)
        self.counters = {(program.enclosing_class(item), program.written(item.target)) for item in inside}


_KNOWN: WeakKeyDictionary[Program, _ProgramOrigins] = WeakKeyDictionary()


def _known(program: Program) -> _ProgramOrigins:
    if program not in _KNOWN:
        _KNOWN[program] = _ProgramOrigins(program)
    return _KNOWN[program]


def _made_generators(program: Program) -> Iterator[FunctionNode | ast.Lambda]:
    for call in program.calls_to("from_generator"):
        given = program.argument(call, "generator", 0)
        factory = program.function_of(given) if isinstance(given, ast.Call) else None
        for back in program.within(factory, ast.Return) if factory is not None else ():
            made = program.callable_of(back.value)
            if made is not None:
                yield made


def _pairs(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Each name that a statement or a loop gives a value, with what it is taken from."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _matching(target, node.value)
    elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value is not None:
        yield from _matching(node.target, node.value)
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield from _matching(node.optional_vars, node.context_expr)
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        yield from _matching(node.target, node.iter)


def _matching(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Starred):
        yield from _matching(target.value, value)
    elif isinstance(target, ast.Tuple | ast.List):
        parts = value.elts if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts) else None
        for position, part in enumerate(target.elts):
            yield from _matching(part, parts[position] if parts is not None else value)


class _BackwardWalk:
    """One search backwards; each name of each scope is visited once."""

    def __init__(self, program: Program, without: frozenset[str], *, at_module: bool) -> None:
        self.found: set[Ground] = set()
        self._program = program
        self._without = without
        self._at_module = at_module
        self._seen: set[tuple[ast.AST | None, str]] = set()

    def expression(self, node: ast.AST) -> None:
        program = self._program
        for call in program.within(node, ast.Call):
            if is_random_number(program, call) or program.method(call) == "get_params":
                self.found.add(Ground("random", call))
        for part in program.within(node, ast.Name):
            if part.id not in self._without and not _is_called(program, part):
                self._name(part)
        for attribute in program.within(node, ast.Attribute):
            if _is_counter(program, attribute):
                self.found.add(Ground("counter", attribute))

    def _name(self, node: ast.Name) -> None:
        scope: Scope = self._program.enclosing_scope(node)
        while True:
            if (scope, node.id) in self._seen:
                return
            given = bindings(self._program, scope, node.id)
            is_parameter = scope is not None and node.id in parameters(scope) and node.id not in _OWN
            if given or is_parameter:
                break
            if scope is None:
                return
            scope = self._program.index.scope(scope)
        self._seen.add((scope, node.id))
        if scope is None and not self._at_module:
            return  # made once, when the file runs
        if is_parameter and scope is not None:
            self._parameter(scope, node.id)
        for statement, value in given:
            if isinstance(statement, ast.For | ast.AsyncFor | ast.comprehension):
                self.found.add(Ground("loop", statement, node.id))
            self.expression(value)

    def _parameter(self, function: FunctionNode | ast.Lambda, name: str) -> None:
        self.found.add(Ground("parameter", function, name))
        if isinstance(function, ast.Lambda):
            return
        for call in self._program.callers(function):
            given = self._program.argument_for(call, function, name)
            if given is not None and (self._at_module or self._program.enclosing_scope(given) is not None):
                self.expression(given)


def _is_called(program: Program, node: ast.Name) -> bool:
    parent = program.parent(node)
    return (isinstance(parent, ast.Call) and parent.func is node) or node.id in _OWN


def _is_counter(program: Program, node: ast.Attribute) -> bool:
    """`self.position` where some line of an iterator says `self.position += 1`."""
    if not isinstance(node.value, ast.Name) or node.value.id != "self":
        return False
    return (program.enclosing_class(node), f"self.{node.attr}") in _known(program).counters


def _changes(program: Program, ground: Ground, *, random: bool) -> bool:
    if ground.kind == "random":
        return random
    if ground.kind == "loop":
        return _yields_in(program, ground.node)
    if ground.kind == "counter":
        return True
    return _is_given_samples(program, ground.node)


def _is_given_samples(program: Program, function: ast.AST) -> bool:
    """Is this function's parameter the sample itself, or something that cannot be told?"""
    record = _known(program).roots.get(function)
    if isinstance(function, ast.Lambda):
        return record is not None and record.kind != "generator"
    if not isinstance(function, FunctionNode):
        return False
    inside = [call for call in program.callers(function) if record_at(program, call) is not None]
    if record is not None and record.kind == "getitem":
        return True
    if record is not None and record.kind == "generator":
        return False
    return not inside and (record is not None or not program.callers(function)) and function.name != "__init__"


def _yields_in(program: Program, loop: ast.AST) -> bool:
    """Does each round of this loop yield a sample or a batch?"""
    if not isinstance(loop, ast.For | ast.AsyncFor):
        return False
    scope = program.index.scope(loop)
    return any(program.index.scope(node) is scope for node in program.within(loop, ast.Yield, ast.YieldFrom))


def _within_function(program: Program, node: ast.AST) -> Iterator[ast.AST]:
    for above in program.ancestors(node):
        if isinstance(above, FunctionNode):
            return
        yield above


def _each_round(program: Program, node: ast.AST, seen: set[ast.AST]) -> bool:
    function = program.enclosing_function(node)
    if function is None:
        return True
    if function in seen:
        return False
    seen.add(function)
    if function in _known(program).roots:
        return _in_yielding_loop(program, function, node)
    calls = [call for call in program.callers(function) if record_at(program, call) is not None]
    return not calls or any(_each_round(program, call, seen) for call in calls)


def _in_yielding_loop(program: Program, function: FunctionNode, node: ast.AST) -> bool:
    """In a generator: within the innermost loop round a `yield`. Elsewhere: always, but for an `__iter__` that only hands on."""
    yields = [item for item in program.within(function, ast.Yield, ast.YieldFrom) if program.index.scope(item) is function]
    if not yields:
        return function.name != "__iter__"
    loops = [program.loops_around(item) for item in yields]
    number = program.index.number[node]
    return any(not around or program.in_body(around[0], number) for around in loops)


def root(node: ast.AST | None) -> str:
    """The variable a chain begins with: `history` in `history["loss"].append`; `self.x` stays whole."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call | ast.Starred):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            return f"self.{node.attr}"
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def given_before(program: Program, node: ast.AST) -> Binding | None:
    """The assignment of the variable `node` that comes last before it in the same scope, unpacked or not."""
    name = program.written(node)
    number, scope = program.index.number[node], program.enclosing_scope(node)
    found = [item for item in program.given(name) if item.scope is scope]
    before = [item for item in found if program.index.stop(program.index.all[item.order]) < number]
    return before[-1] if before else None


def sources(program: Program, node: ast.AST) -> Iterator[ast.AST]:
    """Every node of an expression and, through the variables in it, of what they were given in the same function; each once."""
    seen: set[ast.AST] = {node}
    left = [node]
    while left and len(seen) < _MOST:
        for part in program.within(left.pop(), ast.AST):
            yield part
            given = given_before(program, part) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) else None
            if given is not None and given.value not in seen and not program.index.holds(given.value, node):
                seen.add(given.value)
                left.append(given.value)


def loop_names(loop: LoopNode | ast.comprehension) -> set[str]:
    """The variables that a loop sets."""
    if isinstance(loop, ast.While):
        return set()
    return names_in(loop.target)


def comprehensions_round(program: Program, node: ast.AST) -> list[ast.comprehension]:
    """The `for` parts of the comprehensions whose element holds `node`, innermost first."""
    found: list[ast.comprehension] = []
    inner = node
    for above in program.ancestors(node):
        if isinstance(above, ast.stmt | ast.Lambda):
            break
        if isinstance(above, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) and inner not in above.generators:
            found += reversed(above.generators)
        inner = above
    return found


class _Lookup:
    def __init__(self, program: Program) -> None:
        self.added: dict[str, list[tuple[ast.AST, ast.expr]]] = {}
        self.set_on: dict[str, list[ast.expr]] = {}
        for call in program.calls_to(*_ADDING):
            if call.args:
                self.added.setdefault(program.written(program.receiver(call)), []).append((call, call.args[-1]))
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


def set_from_outside(program: Program, attribute: str) -> list[ast.expr]:
    """What `data.transform = …` gives to an attribute of this name, on anything but `self`."""
    return _lookup(program).set_on.get(attribute, [])


def added_to(program: Program, name: str) -> list[tuple[ast.AST, ast.expr]]:
    """What `x += …` and `x.append(…)` add to a variable, as written."""
    return _lookup(program).added.get(name, [])
