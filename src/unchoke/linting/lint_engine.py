"""Paths to findings: reads each file, runs the rules, leaves out what the author marked, sorts.

In come paths (files or folders) and which rules to run; out goes a `LintResult`. A rule that raises is our bug: it is reported
as a problem and the other rules go on. Nothing is printed and nothing is written.
"""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from unchoke.code.facts.stakes import is_benchmark, is_little, is_reached, texts_of, trains_on_photos, trains_on_small_set
from unchoke.code.magics import split_lines
from unchoke.code.neighbours import with_neighbours
from unchoke.code.program import Program
from unchoke.code.source import CodePlace, SourceFile, SourceProblem, is_borrowed, read_source
from unchoke.core import listing
from unchoke.core.errors import UsageError
from unchoke.core.findings import Finding, Kind
from unchoke.core.input_file import refuse_special
from unchoke.linting.library import is_library
from unchoke.linting.questions import is_made_up
from unchoke.linting.rule import SEVERITIES, Hit, Rule
from unchoke.linting.rules import CODES, LoadedRule, load_rule, split_names

SUFFIXES = (".ipynb", ".py")
_NOQA = re.compile(r"#\s*noqa(?P<codes>\s*:\s*[\w\s,-]+)?", re.IGNORECASE)
_IGNORE = re.compile(r"#\s*unchoke:\s*ignore(?:\[(?P<codes>[\w\s,-]*)\])?", re.IGNORECASE)
_USES_DATA = re.compile(
    r"\bDataLoader\(|\.(?:backward|fit\w*|train|predict\w*)\(|GradientTape|Trainer\(|flow_from_|load_state_dict\("
)
_MARK = re.compile(r"#\s*(?:noqa|unchoke)", re.IGNORECASE)
_CODE = re.compile(r"[\w-]+")
_PASSED_OVER = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist", "venv"})
_TEST_FOLDERS = frozenset({"tests", "testing", "test_utils"})
_BENCHMARK = re.compile(r"(?:^|_|-)bench(?:mark(?:s|ing)?)?(?:_|-|\.)", re.IGNORECASE)
_TESTS = re.compile(r"^\s*(?:import|from)\s+(?:pytest|unittest)\b|^\s*def test_|^\s*class \w*Test|\bTestCase\b", re.MULTILINE)
_REFUSALS = frozenset({"raises", "assertRaises", "assertRaisesRegex", "warns", "assertWarns", "assertWarnsRegex"})


@dataclass(frozen=True)
class FileProblem:
    """Something that could not be read, with its file; `internal` marks a mistake of ours."""

    path: str
    cell: int | None
    line: int | None
    message: str
    internal: bool = False


@dataclass(frozen=True, eq=False)
class LintFinding:
    """A finding with what a report needs besides: the hit, its whole place and the rule."""

    finding: Finding
    hit: Hit
    place: CodePlace
    rule: Rule
    source: SourceFile

    @property
    def kind(self) -> Kind:
        return self.hit.kind or self.rule.kind


@dataclass(frozen=True)
class LintResult:
    """`found` and `findings` are the same, in the same order."""

    found: list[LintFinding] = field(default_factory=list)
    """The findings with what a fix would change, in the order of `findings`."""
    problems: list[FileProblem] = field(default_factory=list)
    """Files that do not parse."""
    files: int = 0
    """How many files were read."""
    cells: int = 0
    """How many cells of notebooks."""
    nits_left_out: int = 0
    """How many findings that hardly matter are not among these."""

    @property
    def findings(self) -> list[Finding]:
        """What was found, in the order of the files."""
        return [item.finding for item in self.found]

    def to_dict(self) -> dict[str, Any]:
        return {
            "findings": [finding.to_dict() for finding in self.findings],
            "problems": [vars(problem) for problem in self.problems],
            "files": self.files,
            "cells": self.cells,
            "nits_left_out": self.nits_left_out,
        }


def lint(
    paths: Iterable[str | Path], *, select: Sequence[str] = (), ignore: Sequence[str] = (), nits: bool = False
) -> LintResult:
    """Read every notebook and script at or below `paths` and run the chosen rules; `nits` asks for what hardly matters too."""
    rules = chosen_rules(select, ignore, nits=nits)
    texts_of.cache_clear()  # files may have changed since
    results = []
    for path, below in _listed(paths):
        with _uncollected():
            source = _read(path)
            results.append(lint_file(source, rules, in_tests=is_test_code(below, source)))
    return join_results(results)


@contextmanager
def _uncollected() -> Iterator[None]:
    """No search for garbage while one file is read: its trees and answers are all in use, and there are many."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def is_test_code(below: str, source: SourceFile) -> bool:
    """Is this part of a test suite, by its path below the folder that was named, or a benchmark? What trains there is small.

    A script `test_unet.py` may as well evaluate a network: where the name leaves it open, the text has to show tests.
    """
    *folders, name = PurePosixPath(below).parts or ("",)
    if _TEST_FOLDERS & set(folders) or name == "conftest.py" or _BENCHMARK.search(name):
        return True
    open_name = "test" in folders or name.startswith("test_") or name.endswith("_test.py")
    return open_name and any(cell.kind == "code" and _TESTS.search(cell.text) for cell in source.cells)


def join_results(results: Iterable[LintResult]) -> LintResult:
    """Several results as one, in this order."""
    some = list(results)
    found = [item for result in some for item in result.found]
    problems = [problem for result in some for problem in result.problems]
    files, cells = sum(result.files for result in some), sum(result.cells for result in some)
    return LintResult(found, problems, files, cells, sum(result.nits_left_out for result in some))


def _read(path: Path) -> SourceFile:
    """The file, or a source with nothing in it but the reason why it could not be opened: the others go on."""
    try:
        source = read_source(path)
        uses_data = source.is_notebook or any(_USES_DATA.search(cell.text) for cell in source.cells)
        return with_neighbours(source) if uses_data else source  # what only defines things is read by whoever uses it
    except UsageError as error:
        return SourceFile(str(path), path.suffix == ".ipynb", (), (SourceProblem(None, None, f"cannot be opened: {error.why}"),))


def chosen_codes(select: Sequence[str], ignore: Sequence[str]) -> list[str]:
    """The codes to run; a group's name stands for its rules. An unknown code is a usage error."""
    wanted = (_expanded(select) if select else set(CODES)) - _expanded(ignore)
    return [code for code in CODES if code in wanted]


def chosen_rules(select: Sequence[str] = (), ignore: Sequence[str] = (), *, nits: bool = False) -> list[LoadedRule]:
    """The rules to run. A rule selected by its own name shows its nits too: it was asked for."""
    named = split_names(select)
    rules = map(load_rule, chosen_codes(select, ignore))
    return [replace(loaded, nits=nits or loaded.rule.code in named) for loaded in rules]


def _expanded(names: Sequence[str]) -> set[str]:
    asked = split_names(names)
    return {code for code in CODES if code in asked or (asked and load_rule(code).rule.group in asked)}


def source_files(paths: Iterable[str | Path]) -> Iterator[Path]:
    """The notebooks and scripts at or below `paths`, each once. A path that is not there is a usage error."""
    return (file for file, _ in _listed(paths))


def _listed(paths: Iterable[str | Path]) -> Iterator[tuple[Path, str]]:
    """Each file with its path below the folder that was named; empty for a file that was named itself."""
    seen: set[Path] = set()
    for given in paths:
        for file, below in _files_at(Path(given)):
            if file not in seen:
                seen.add(file)
                yield file, below


def _files_at(path: Path) -> Iterator[tuple[Path, str]]:
    if path.is_dir():
        try:
            for entry in listing.walk(path):
                parts = entry.relative.split("/")
                if entry.relative.endswith(SUFFIXES) and not _PASSED_OVER & set(parts[:-1]):
                    yield Path(entry.path), entry.relative
        except OSError as error:
            why = f"{error.filename or path}: {error.strerror or error}"
            raise UsageError(
                f"cannot list {path}", code="cannot-list", why=why, try_="name the folders and files that can be read"
            ) from error
    elif path.exists():
        refuse_special(path)
        yield path, ""
    else:
        raise UsageError(
            f"there is no {path}",
            code="no-such-file",
            why="it is neither a file nor a folder",
            try_="give a notebook, a script or a folder",
        )


def lint_file(source: SourceFile, rules: Sequence[LoadedRule], *, in_tests: bool = False) -> LintResult:
    """One source: what was found and is wanted, and how many nits are not.

    In test code and on data made up at random everything is a nit, and so is in a library what only its callers settle.
    """
    found, problems = _examine(source, rules)
    alone = all(item.kind == "nit" for item in found) or (not in_tests and not is_library(source))
    found = [item if alone or (item.rule.holds_alone and not in_tests) else _as(item, kind="nit") for item in found]
    found = _one_of_pipeline(_joined(found))
    nitty = {loaded.rule.code for loaded in rules if loaded.nits}
    shown = [item for item in found if item.kind != "nit" or item.rule.code in nitty]
    return LintResult(shown, problems, 1, len(source.cells), len(found) - len(shown))


def _as(item: LintFinding, **changes: Any) -> LintFinding:
    hit = replace(item.hit, **changes)
    return replace(item, hit=hit, finding=_finding(item.source, item.rule, hit, item.place))


def _joined(found: list[LintFinding]) -> list[LintFinding]:
    """One fact, one finding: of hits of one file that say the same, the first, which then counts and mends the others."""
    same: dict[object, list[LintFinding]] = {}
    for item in found:
        same.setdefault((item.rule.code, item.kind, item.hit.fact) if item.hit.fact else item, []).append(item)
    return [first if not others else _with_others(first, others) for first, *others in same.values()]


def _with_others(first: LintFinding, others: list[LintFinding]) -> LintFinding:
    lines = [item.place.line for item in (first, *others)]
    return _as(
        first,
        message=f"{first.hit.message}, here and in {len(others)} more line{'s' if others[1:] else ''}",
        evidence={**first.hit.evidence, "lines": lines},
        edits=(*first.hit.edits, *(edit for item in others for edit in item.hit.all_edits)),
        suggestion=(*first.hit.suggestion, *(edit for item in others for edit in item.hit.suggestion)),
    )


def _one_of_pipeline(found: list[LintFinding]) -> list[LintFinding]:
    """Several rules on one way of the data to the step are one finding: of the simplest fix, which tells the others."""
    shown = {item.rule.code for item in found if item.kind != "nit"}
    by_lead: dict[str, list[LintFinding]] = {}
    for item in found:
        lead = next((code for code in item.rule.eased_by if code in shown), None)
        if lead is not None:
            by_lead.setdefault(lead, []).append(item)
    told = {id(item) for items in by_lead.values() for item in items}
    leads = {code: next(item for item in found if item.rule.code == code and item.kind != "nit") for code in by_lead}
    result = []
    for item in found:
        if id(item) in told:
            result.append(_as(item, kind="nit"))
        elif leads.get(item.rule.code) is item:
            result.append(_with_besides(item, by_lead[item.rule.code]))
        else:
            result.append(item)
    return result


def _with_besides(lead: LintFinding, others: list[LintFinding]) -> LintFinding:
    also = [{"code": item.rule.code, "cell": item.place.cell, "line": item.place.line} for item in others]
    fix = lead.hit.fix
    for risky, words in ((True, "first mend what would stop it"), (False, "then, on the same pipeline")):
        places = [f"{item.rule.code} ({_where(item.place)})" for item in others if (item.rule.kind == "risk") is risky]
        fix += f"; {words}: {', '.join(places)}" if places else ""
    return _as(lead, fix=fix, evidence={**lead.hit.evidence, "also": also})


def _where(place: CodePlace) -> str:
    return f"line {place.line}" if place.cell is None else f"cell {place.cell}, line {place.line}"


def lint_source(source: SourceFile, rules: Sequence[LoadedRule]) -> tuple[list[LintFinding], list[FileProblem]]:
    """Findings and problems of one source, and of the scripts that its cells write."""
    result = lint_file(source, rules)
    return result.found, result.problems


def _examine(source: SourceFile, rules: Sequence[LoadedRule]) -> tuple[list[LintFinding], list[FileProblem]]:
    """Everything the rules find, nits and all, in the order of the source."""
    problems = [FileProblem(source.path, item.cell, item.line, item.message) for item in source.problems]
    marks = IgnoreMarks(source)
    found: dict[tuple[str, CodePlace], LintFinding] = {}
    for program in _programs(source, problems):
        refused = list(_refused(program))
        for loaded, hit in _hits(program, rules, problems):
            place = hit.at if isinstance(hit.at, CodePlace) else program.place(hit.at)
            key = (loaded.rule.code, CodePlace(place.cell, place.line))
            if any(block.cell == place.cell and block.line <= place.line <= block.end_line for block in refused):
                continue
            if key not in found and not is_borrowed(place) and not marks.silences(place, loaded.rule.code):
                found[key] = LintFinding(_finding(source, loaded.rule, hit, place), hit, place, loaded.rule, source)
        program.memory.clear()  # its answers know the program: without them it goes at once, and no garbage is searched for
    return sorted(
        found.values(), key=lambda item: (item.place.cell or 0, item.place.line, item.place.column, item.rule.code)
    ), problems


def _refused(program: Program) -> Iterator[CodePlace]:
    """Blocks that must fail, `with pytest.raises(…):` (what is wrong there is wanted), or that `TRAIN = False` leaves out."""
    for call in program.calls_to(*_REFUSALS):
        block = program.statement(call)
        if isinstance(program.parent(call), ast.withitem) and block is not None:
            yield program.place(block)
    for branch in program.nodes(ast.If):
        if program.enclosing_function(branch) is None and program.value(branch.test) is False:
            yield from map(program.place, branch.body)


def _programs(source: SourceFile, problems: list[FileProblem]) -> Iterator[Program]:
    """The file's own program and those that its cells write; what cannot be followed is a problem."""
    for one in (source, *source.scripts):
        try:
            yield Program(one)
        except RecursionError:
            problems.append(FileProblem(source.path, None, None, "nested too deeply to be read"))


def _hits(program: Program, rules: Sequence[LoadedRule], problems: list[FileProblem]) -> Iterator[tuple[LoadedRule, Hit]]:
    for loaded in rules:
        try:
            hits = list(loaded.check(program))
        except Exception as error:  # our bug: said, and the other rules go on
            message = f"internal: the rule {loaded.rule.code} failed: {type(error).__name__}: {error}"
            problems.append(FileProblem(program.source.path, None, None, message, internal=True))
            continue
        for hit in hits:
            if loaded.rule.in_training and trains_on_photos(program):
                hit = replace(hit, kind="choke")
            yield loaded, hit if _pays(program, loaded.rule, hit) else replace(hit, kind="nit")


def _pays(program: Program, rule: Rule, hit: Hit) -> bool:
    """Do the files show that acting on it would be noticed: it is reached, and there is data enough, that is not made up?"""
    kind = hit.kind or rule.kind
    if kind == "nit":
        return True
    grows = kind == "choke" and rule.group in ("input", "process", "device")  # what it costs, with the data
    small = grows and (is_little(program) or (rule.group != "input" and trains_on_small_set(program)))
    if small or is_made_up(program) or (kind == "choke" and is_benchmark(program)):
        return False
    return not isinstance(hit.at, ast.AST) or is_reached(program, hit.at)


def find_chokes(source: SourceFile) -> tuple[list[Finding], list[str]]:
    """The choke points that all rules find in one source, without nits, and what went wrong in a rule itself."""
    found, problems = lint_source(source, chosen_rules())
    return [item.finding for item in found], [problem.message for problem in problems if problem.internal]


def _finding(source: SourceFile, rule: Rule, hit: Hit, place: CodePlace) -> Finding:
    kind = hit.kind or rule.kind
    claim = "" if hit.gain else rule.claim
    gain = hit.gain or rule.gain
    gain = gain if claim or not gain else f"{gain} (unmeasured)"
    return Finding(
        code=rule.code,
        message=hit.message,
        severity=SEVERITIES[kind],
        path=source.path,
        line=place.line,
        cell=place.cell,
        stage=rule.stage,
        evidence={"title": rule.title, **hit.evidence, **({"claim": claim} if claim else {})},
        expected_gain=gain or "unmeasured",
        fix=hit.fix,
        command=rule.command,
        paths=(source.path,),
        kind=kind,
    )


class IgnoreMarks:
    """Lines on which the author wrote `# noqa` or `# unchoke: ignore[...]`."""

    def __init__(self, source: SourceFile) -> None:
        self._marks: dict[tuple[int | None, int], set[str] | None] = {}
        for cell in source.cells:
            if cell.kind == "code" and _MARK.search(cell.text):
                for number, line in enumerate(split_lines(cell.text), start=1):
                    for found in filter(None, (_NOQA.search(line), _IGNORE.search(line))):
                        codes = found.group("codes")
                        named = set(_CODE.findall(codes.lower())) if codes and codes.strip(" :") else None
                        self._marks[cell.number, number] = named

    def silences(self, place: CodePlace, code: str) -> bool:
        """Is the finding's line, or the last line of what it points at, marked for this rule or for all?"""
        for line in {place.line, place.end_line or place.line}:
            if (place.cell, line) in self._marks:
                named = self._marks[place.cell, line]
                if named is None or code in named:
                    return True
        return False
