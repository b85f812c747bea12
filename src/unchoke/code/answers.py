"""Answers about nodes, each worked out once, also where one rests on another and that on the first again."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

A = TypeVar("A")
P = ParamSpec("P")


class Remembering(Protocol):
    """What answers are kept with: a program."""

    memory: dict[Any, dict[Any, Any]]


S = TypeVar("S", bound=Remembering)


def remembered(work_out: Callable[Concatenate[S, P], A]) -> Callable[Concatenate[S, P], A]:
    """The function or method, with each answer kept in the memory of the program that is asked about."""

    @wraps(work_out)
    def answer(program: S, /, *given: P.args, **named: P.kwargs) -> A:
        answers = program.memory.get(work_out)
        if answers is None:
            answers = program.memory[work_out] = {}
        key = (*given, *named.values()) if named else given
        if key not in answers:
            answers[key] = work_out(program, *given, **named)
        return answers[key]  # type: ignore[no-any-return]

    return answer


class Answers(Generic[A]):
    """What is being worked out already, or lies too deep, has the answer `open`."""

    def __init__(self, open_: A, deepest: int) -> None:
        self._open = open_
        self._deepest = deepest
        self._known: dict[ast.AST, A] = {}
        self._passing: dict[ast.AST, tuple[A, int]] = {}
        self._asked: dict[ast.AST, int] = {}  # what is being worked out, with its depth
        self._lowest = 0  # the least depth that the answers of now rest on

    def of(self, node: ast.AST, work_out: Callable[[ast.AST], A]) -> A:
        if node in self._known:
            return self._known[node]
        if node in self._passing:
            found, lowest = self._passing[node]
            self._lowest = min(self._lowest, lowest)
            return found
        if node in self._asked or len(self._asked) > self._deepest:
            self._lowest = min(self._lowest, self._asked.get(node, 0))
            return self._open
        return self._worked_out(node, work_out)

    def _worked_out(self, node: ast.AST, work_out: Callable[[ast.AST], A]) -> A:
        """Kept for good, unless it rests on an answer further up that is still being worked out: then until that is done."""
        depth, outside, passing = len(self._asked), self._lowest, len(self._passing)
        self._asked[node], self._lowest = depth, depth
        try:
            found = work_out(node)
        finally:
            del self._asked[node]
        if self._lowest >= depth:
            for other in list(self._passing)[passing:]:
                del self._passing[other]
            self._known[node] = found
            self._lowest = outside
        else:
            self._passing[node] = (found, self._lowest)
            self._lowest = min(self._lowest, outside)
        return found
