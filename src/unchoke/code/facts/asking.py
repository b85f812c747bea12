"""One question about values (is it on the device, has it a graph), followed through names, branches, loops, calls and containers.

A subclass answers for calls and attributes and says how answers join; here an expression is taken apart, a variable leads to all
bindings that can be in force, a parameter to what callers give, a part of a tuple to what a function returns there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Generic, TypeVar

from unchoke.code.bindings import Binding
from unchoke.code.node_index import Answers, FunctionNode, names_in
from unchoke.code.program import Program

A = TypeVar("A")
_PLAIN = (ast.Constant, ast.JoinedStr, ast.Lambda)
_OF_VALUE = (ast.Subscript, ast.Starred, ast.Await, ast.NamedExpr, ast.Yield, ast.YieldFrom)
_WRAPPING = frozenset({"tqdm", "enumerate", "zip", "iter", "reversed", "list", "sorted", "track", "islice", "progress_bar"})


class Question(Generic[A]):
    """Answers for one program, remembered. What is being worked out, or lies too deep, has the answer `open`."""

    open: A
    plain: A  # of constants, texts and functions
    deepest = 14

    def __init__(self, program: Program) -> None:
        self.program = program
        self._answers: Answers[A] = Answers(self.open, self.deepest)

    def ask(self, node: ast.AST | None) -> A:
        return self._answers.of(node, self._answer) if node is not None else self.open

    # What a subclass says

    def join(self, answers: Iterable[A]) -> A:
        raise NotImplementedError

    def call(self, call: ast.Call) -> A:
        raise NotImplementedError

    def attribute(self, node: ast.Attribute) -> A:
        raise NotImplementedError

    def compared(self, node: ast.Compare) -> A:
        raise NotImplementedError

    def round(self, over: ast.expr, target: ast.expr, name: str) -> A:
        """One round of a loop over something, bars and counters taken off."""
        raise NotImplementedError

    def bound(self, _bound: Binding, _node: ast.expr, /) -> A | None:
        """A binding that settles it by itself; None to go on with its value."""
        return None

    def unbound(self, _node: ast.Name, /) -> A:
        return self.open

    # Following

    def any_of(self, nodes: Iterable[ast.AST | None]) -> A:
        return self.join([self.ask(node) for node in nodes])

    def _answer(self, node: ast.AST) -> A:
        if isinstance(node, ast.Name):
            return self.named(node)
        if isinstance(node, ast.Call):
            return self.call(node)
        if isinstance(node, ast.Attribute):
            return self.attribute(node)
        if isinstance(node, ast.Compare):
            return self.compared(node)
        if isinstance(node, _PLAIN):
            return self.plain
        if isinstance(node, _OF_VALUE):
            return self.ask(node.value)
        return self.any_of(_parts(node))

    def named(self, node: ast.Name | ast.Attribute) -> A:
        """A variable: all that it may have been given here, joined."""
        found = self.program.reaching(node)
        if not found:
            return self.unbound(node) if isinstance(node, ast.Name) else self.open
        return self.join([self._of_binding(item, node) for item in found])

    def _of_binding(self, bound: Binding, node: ast.Name | ast.Attribute) -> A:
        settled = self.bound(bound, node)
        if settled is not None:
            return settled
        if bound.how == "handed" and isinstance(node, ast.Name):
            return self.handed(node)
        if bound.how == "looped" and isinstance(bound.node, ast.For | ast.AsyncFor | ast.comprehension):
            return self.looped(bound.node.iter, bound.node.target, self.program.written(node))
        if bound.how == "made":
            return self.open
        return self.any_of(self._given(bound))

    def looped(self, over: ast.expr, target: ast.expr, name: str) -> A:
        """What a loop hands out under this name: of `zip` and `enumerate`, what stands at its place."""
        method = self.program.method(over)
        parts = target.elts if isinstance(target, ast.Tuple | ast.List) else []
        mine = [place for place, part in enumerate(parts) if name in names_in(part)]
        if not isinstance(over, ast.Call) or not over.args or method not in _WRAPPING:
            return self.round(over, target, name)
        if method == "zip" and mine and mine[0] < len(over.args):
            return self.looped(over.args[mine[0]], parts[mine[0]], name)
        if method == "enumerate" and mine:
            return self.plain if mine[0] == 0 else self.looped(over.args[0], parts[1], name)
        return self.looped(over.args[0], target, name)

    def _given(self, bound: Binding) -> list[ast.expr]:
        """What is given; through a function of this file that returns a tuple, the part at its place."""
        value = bound.value
        if bound.position is None or not isinstance(value, ast.Call) or self.program.facts.is_forward(value):
            return [value]
        function = self.program.function_of(value)
        returned = [item.value for item in self.program.returns(function) if item.value] if function is not None else []
        place = bound.position
        return [item.elts[place] if isinstance(item, ast.Tuple) and place < len(item.elts) else item for item in returned] or [
            value
        ]

    def handed(self, node: ast.Name) -> A:
        """A parameter: what the calls in this file give."""
        function = self.program.enclosing_function(node)
        calls = self.program.callers(function)[:8] if function is not None else []
        given = [self.program.argument_for(call, function, node.id) for call in calls if function is not None]
        return self.any_of(given) if given else self.open

    def returned(self, function: FunctionNode) -> A:
        values = [item.value for item in self.program.returns(function) if item.value is not None]
        return self.any_of(values) if values else self.open


def _parts(node: ast.AST) -> list[ast.AST]:
    """The expressions a compound one is made of, as far as they carry its value."""
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.Dict):
        return list(node.values)
    if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
        return [node.elt]
    if isinstance(node, ast.DictComp):
        return [node.value]
    return [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
