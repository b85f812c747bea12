"""What a rule is and what it says: `Rule`, `Hit`, `Edit`; and how its messages speak of the source.

A rule file holds one `RULE` and one `check(program)` that yields hits; `lint_engine` turns hits into findings. A *choke* likely
costs time or loses work, a *risk* breaks elsewhere or gives wrong results. Both are shown by default, so a rule says them only
where strangers' code has proven it right, or where the file itself shows what is at stake. All else is a *nit*, shown when asked
for: true, but whether it matters hangs on sizes and callers that the file does not tell.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Literal

from unchoke.code.magics import split_lines
from unchoke.code.program import Program
from unchoke.code.source import CodePlace, is_borrowed
from unchoke.core.findings import Kind, Severity

Group = Literal["input", "device", "resume", "process", "compute"]
KINDS: tuple[Kind, ...] = ("choke", "risk", "nit")
"""What matters first."""
SEVERITIES: dict[Kind, Severity] = {"choke": "warning", "risk": "warning", "nit": "info"}
_LONGEST = 60


@dataclass(frozen=True)
class Edit:
    """A piece of source to replace. An empty piece (start = end) is an insertion."""

    place: CodePlace
    replacement: str


@dataclass(frozen=True)
class Hit:
    """One choke point found by a rule. `fix` is what to write instead; `edits` do it where that is mechanical.

    `suggestion` shows how that would look in the author's own lines where it is not proven to change nothing else: it is shown,
    never written. `kind` is given where the file shows that it matters more, or less, than the rule says of itself; `gain`
    where the gain of the rule speaks of something else; `fact` where several hits of a file may say the same: they become one.
    """

    at: ast.AST | CodePlace
    message: str
    evidence: dict[str, Any] = field(default_factory=dict)
    fix: str = ""
    edit: Edit | None = None
    edits: tuple[Edit, ...] = ()
    kind: Kind | None = None
    suggestion: tuple[Edit, ...] = ()
    gain: str = ""
    fact: str = ""

    @property
    def all_edits(self) -> tuple[Edit, ...]:
        return (*((self.edit,) if self.edit else ()), *self.edits)


def offered(edit: Edit | None, *, proven: bool) -> dict[str, Any]:
    """The part of a `Hit` that says what would be written: done by `--fix` where proven, else shown."""
    return {"edit": edit if proven else None, "suggestion": (edit,) if edit is not None and not proven else ()}


@dataclass(frozen=True)
class Rule:
    """`gain` is a commonly reported gain in words; `claim` a heading in docs/claims.md that measures it, or empty: unmeasured.

    `holds_alone`: is it so by a function's text alone, whoever calls it, how often and on what? All else is a nit in a library.
    `in_training`: in a notebook that trains for epochs on pictures from files it is a choke also where little else is known.
    """

    group: Group
    stage: str
    title: str
    gain: str = ""
    claim: str = ""
    command: str = ""
    kind: Kind = "choke"
    fixable: bool = False
    devices: tuple[str, ...] = ()  # where it shows; empty: anywhere
    eased_by: tuple[str, ...] = ()  # rules on the same pipeline with a simpler fix: they tell this one too
    since: str = ""  # the version from which the advice holds, such as "torch 2.0"
    frameworks: tuple[str, ...] = ("torch", "keras")
    holds_alone: bool = False
    in_training: bool = False
    code: str = ""  # its file's name with dashes, given when it is loaded


def at_method(program: Program, call: ast.Call) -> CodePlace:
    """From the method's name to the end of the call; the whole call where it is no method."""
    whole = program.place(call)
    if not isinstance(call.func, ast.Attribute):
        return whole
    name = program.place(call.func)
    return CodePlace(whole.cell, name.end_line, name.end_column - len(call.func.attr), whole.end_line, whole.end_column)


def append_arguments(program: Program, call: ast.Call, text: str) -> Edit | None:
    """`, text` after the last argument of a call; None where a bracket round that argument makes the place uncertain."""
    given = [*call.args, *call.keywords]
    if not given:
        return None
    last = max((program.place(item) for item in given), key=lambda place: (place.end_line, place.end_column))
    whole = program.place(call)
    lines = split_lines(program.cell(call).text)
    between = _between(lines, (last.end_line, last.end_column), (whole.end_line, whole.end_column))
    if between.count(")") != 1 or "#" in between or between.count("(") or between.replace(",", "", 1).strip() != ")":
        return None
    return Edit(CodePlace(whole.cell, last.end_line, last.end_column, last.end_line, last.end_column), f", {text}")


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    if start[0] == end[0]:
        return lines[start[0] - 1][start[1] : end[1]]
    middle = lines[start[0] : end[0] - 1]
    return "\n".join([lines[start[0] - 1][start[1] :], *middle, lines[end[0] - 1][: end[1]]])


def shortened(program: Program, node: ast.AST, *, keep_end: bool = True) -> str:
    """The code on one line, cut at the front (so that the call at its end stays) or at the back."""
    text = program.text(node)
    if len(text) <= _LONGEST:
        return text
    return "…" + text[-_LONGEST + 2 :] if keep_end else text[: _LONGEST - 2] + "…"


def line_of(program: Program, node: ast.AST, *, seen_from: ast.AST) -> str:
    """`line 12`, with the cell where that is another one, or the file."""
    place, here = program.place(node), program.place(seen_from)
    if is_borrowed(place):
        return f"{PurePath(program.cell(node).origin).name}, line {place.line}"
    if place.cell is None or place.cell == here.cell:
        return f"line {place.line}"
    return f"cell {place.cell}, line {place.line}"
