"""What stands on a line that was measured: its calls with the names they were imported by, the loops round it, its function.

In: a file, a line and perhaps the piece of it that ran (`StackRow.span`). Out: a `SourceLine`, or None where the file is gone,
does not parse or is no file. Sources are read once. Nothing is judged here.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from unchoke.code.node_index import FunctionNode
from unchoke.code.program import Program
from unchoke.code.source import read_source
from unchoke.core.errors import UnchokeError
from unchoke.core.findings import CodeLine

_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
Span = tuple[int, ...]
Diff = tuple[str, ...]
"""A line of the user's as it is and as it should be, or only as it is where it should go; empty where no edit is safe."""


@dataclass(frozen=True, eq=False)
class SourceLine:
    """One line of the user's: the statement it belongs to, and the expression that was being worked out."""

    program: Program
    statement: ast.stmt
    expression: ast.AST

    @cached_property
    def text(self) -> str:
        """The statement on one line; of a compound one, its head."""
        text = self.program.text(self.statement)
        return text.splitlines()[0] if text else ""

    @cached_property
    def calls(self) -> list[tuple[str, ast.Call]]:
        """Calls of the expression, else of the statement, outermost first, by name: `numpy.concatenate`, `?.execute`."""
        inside = self._calls_in(self.expression)
        return inside or self._calls_in(self.statement)

    @cached_property
    def all_calls(self) -> list[tuple[str, ast.Call]]:
        return self._calls_in(self.statement)

    def _calls_in(self, node: ast.AST) -> list[tuple[str, ast.Call]]:
        if isinstance(node, ast.For | ast.While | ast.With | ast.If):
            heads = {ast.For: "iter", ast.While: "test", ast.If: "test"}
            parts = (
                [item.context_expr for item in node.items] if isinstance(node, ast.With) else [getattr(node, heads[type(node)])]
            )
            return [found for part in parts for found in self._calls_in(part)]
        return [(self.program.name(call), call) for call in self.program.within(node, ast.Call)]

    @cached_property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    @cached_property
    def function(self) -> FunctionNode | None:
        return self.program.enclosing_function(self.statement)

    @cached_property
    def bases(self) -> list[str]:
        """What the class round the line is made from, by name."""
        owner = self.program.index.owner(self.statement)
        return [] if owner is None else [self.program.name(base) for base in owner.bases]

    @cached_property
    def loops(self) -> list[ast.AST]:
        """Loops and comprehensions round the expression, innermost first, inside its function; not those that train."""
        found: list[ast.AST] = []
        at: ast.AST | None = self.expression
        while at is not None and not isinstance(at, FunctionNode | ast.ClassDef | ast.Module):
            above = self.program.parent(at)
            if isinstance(above, _LOOPS) and not (isinstance(above, ast.For | ast.AsyncFor) and above.iter is at):
                found.append(above)
            at = above
        return [loop for loop in found if not self._trains(loop)]

    @cached_property
    def spins(self) -> bool:
        """Whether the line stands in, or is, a `while` that neither waits, sleeps nor works: it only asks."""
        around = [self.statement, *self.program.ancestors(self.statement)]
        loop = next((node for node in around if isinstance(node, ast.While)), None)
        if loop is None or isinstance(loop.test, ast.Constant):
            return False
        return all(isinstance(node, ast.Pass | ast.Continue) for node in loop.body)

    def _trains(self, loop: ast.AST) -> bool:
        return any(self.program.method(call) in ("backward", "step", "zero_grad") for call in self.program.within(loop, ast.Call))


@lru_cache(maxsize=32)
def _program(file: str) -> Program | None:
    if not file.endswith(".py") or not Path(file).is_file():
        return None
    try:
        return Program(read_source(Path(file)))
    except (UnchokeError, OSError, RecursionError):
        return None


def source_line(file: str, line: int, span: Span = ()) -> SourceLine | None:
    """The line as it stands in the file now."""
    program = _program(file)
    if program is None:
        return None
    statement = _innermost(program, line)
    if statement is None:
        return None
    if isinstance(statement, ast.For | ast.AsyncFor) and len(span) == 4 and span[1] > span[0]:
        statement = statement.body[-1]  # met on the way back to the head, at the end of the body
    return SourceLine(program, statement, _expression(program, statement, span) or statement)


def _innermost(program: Program, line: int) -> ast.stmt | None:
    """The statement with the fewest lines that covers this one."""
    around = [
        node
        for node in program.nodes(ast.stmt)
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return min(around, key=lambda node: (node.end_lineno or node.lineno) - node.lineno, default=None)


def _expression(program: Program, statement: ast.stmt, span: Span) -> ast.AST | None:
    """The smallest expression that covers the piece of source that ran."""
    if len(span) != 4:
        return None
    line, end_line, column, end_column = span
    found = [
        node
        for node in program.within(statement, ast.expr)
        if (node.lineno, node.col_offset) <= (line, column) and (node.end_lineno, node.end_col_offset) >= (end_line, end_column)
    ]
    return found[-1] if found else None


def loop_lines(file: str, line: int) -> range | None:
    """The lines of the outermost loop round a line that does not train; None where there is none."""
    found = source_line(file, line)
    loops = [loop for loop in found.loops if isinstance(loop, ast.stmt)] if found is not None else []
    return range(loops[-1].lineno, (loops[-1].end_lineno or loops[-1].lineno) + 1) if loops else None


def call_in(file: str, *names: str, within: int = 0) -> CodeLine | None:
    """The first call by one of these names in a file, or in the function that begins at the line `within`, as a line of it."""
    program = _program(file)
    for call in program.nodes(ast.Call) if program is not None else ():
        if program is None or program.name(call) not in names:
            continue
        function = program.enclosing_function(call)
        if not within or (function is not None and function.lineno == within):
            return CodeLine(file, call.lineno)
    return None


def keyword_in(file: str, name: str, value: str) -> CodeLine | None:
    """The first keyword of a call by this name and with this text, such as `padding="max_length"`."""
    program = _program(file)
    for call in program.nodes(ast.Call) if program is not None else ():
        for keyword in call.keywords:
            if keyword.arg == name and isinstance(keyword.value, ast.Constant) and keyword.value.value == value:
                return CodeLine(file, keyword.value.lineno)
    return None


def changed_call(place: CodeLine, method: str, **keywords: str) -> Diff:
    """The line as it is and with these keywords in its call of `method`; nothing unless the call stands on that one line."""
    program = _program(place.file)
    for call in program.nodes(ast.Call) if program is not None else ():
        if program is None or program.method(call) != method or not call.lineno == call.end_lineno == place.line:
            continue
        if any(keyword.arg is None for keyword in call.keywords) or any(isinstance(one, ast.Starred) for one in call.args):
            return ()
        new = ast.Call(call.func, call.args, [keyword for keyword in call.keywords if keyword.arg not in keywords])
        new.keywords += [ast.keyword(name, ast.parse(value, mode="eval").body) for name, value in keywords.items()]
        old = Path(place.file).read_text(encoding="utf-8", errors="replace").splitlines()[place.line - 1]
        bytes_old, first, last = old.encode(), call.col_offset, call.end_col_offset or 0
        return old.strip(), (bytes_old[:first].decode() + ast.unparse(new) + bytes_old[last:].decode()).strip()
    return ()


def removed_line(place: CodeLine) -> Diff:
    """The line as it is, to be taken out; nothing where it is part of a larger statement."""
    found = source_line(place.file, place.line)
    if found is None or not isinstance(found.statement, ast.Expr) or found.statement.lineno != found.statement.end_lineno:
        return ()
    return (found.text,)
