"""Reads notebooks and scripts, asks every rule, and gives back findings.

A file is parsed, joined with the modules beside it and with its saved outputs, and each rule looks at that. Files that cannot be
read and rules that fail are `problems`: they are reported, and the rest goes on.
"""

from __future__ import annotations

import gc
import os
import re
import subprocess
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from unchoke_doctor.causes import catalogue
from unchoke_doctor.code.neighbours import read_program
from unchoke_doctor.code.outputs import read_outputs
from unchoke_doctor.code.source import Cell, CodePlace, SourceFile, parse_source
from unchoke_doctor.code.training import own_node
from unchoke_doctor.errors import UsageError
from unchoke_doctor.files import write_bytes, write_json
from unchoke_doctor.finding import Finding
from unchoke_doctor.fixes import FixedFile, apply, diff_text, preview
from unchoke_doctor.rules import CODES as CODES
from unchoke_doctor.rules import Case, Edit, Hit, load_rule, make_case

SUFFIXES = (".ipynb", ".py")
STDIN = "-"
_KINDS = ("choke", "risk", "note")
_SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist", "venv"})
_NOQA = re.compile(r"#\s*(?:noqa(?:\s*:(?P<codes>[\w\s,-]+))?|unchoke:\s*ignore(?:\[(?P<named>[\w\s,-]*)\])?)", re.IGNORECASE)


@dataclass(frozen=True)
class Problem:
    """Something that could not be read, with its file; `internal` marks a bug of ours."""

    path: str
    cell: int | None
    line: int | None
    message: str
    internal: bool = False


@dataclass(frozen=True, eq=False)
class Found:
    """A finding with its whole place, the cell it stands in, and what a fix would change."""

    finding: Finding
    place: CodePlace
    cell: Cell | None = None
    edits: tuple[Edit, ...] = ()
    shown: tuple[Edit, ...] = ()

    @property
    def code(self) -> str:
        return self.finding.code

    @property
    def source_line(self) -> str:
        lines = self.cell.lines if self.cell is not None else []
        return lines[self.place.line - 1] if 0 < self.place.line <= len(lines) else ""

    @property
    def diff(self) -> list[str]:
        """The author's lines before and after the fix, as far as it can be written down."""
        cell, edits = self.cell, self.edits or self.shown
        return preview(cell, [edit for edit in edits if edit.place.cell == cell.number]) if cell is not None else []


@dataclass
class LintResult:
    """What was found in all files."""

    found: list[Found] = field(default_factory=list)
    """The findings with their places and fixes, in the order of the files."""
    problems: list[Problem] = field(default_factory=list)
    """What could not be read."""
    num_files: int = 0
    """How many files were read."""
    num_cells: int = 0
    """How many cells they have; a script is one."""
    num_hidden_notes: int = 0
    """How many notes were left out."""
    codes: list[str] = field(default_factory=list)
    """The rules that were asked."""
    fixed: list[FixedFile] = field(default_factory=list)
    """The files after their fixes."""
    written: bool = False
    """Whether the fixes are in the files, or only shown."""
    seconds: float = 0.0
    """How long it took."""
    words: list[str] = field(default_factory=list)
    """Paths and options as they would be typed again."""

    @property
    def findings(self) -> list[Finding]:
        """The findings as plain data."""
        return [item.finding for item in self.found]

    @property
    def nothing_read(self) -> bool:
        """Not one file or cell could be read: "nothing found" would be no answer."""
        unread = [problem for problem in self.problems if not problem.internal]
        whole = {problem.path for problem in unread if problem.cell is None}
        cells = {(problem.path, problem.cell) for problem in unread if problem.cell is not None}
        return bool(unread) and (len(whole) == self.num_files or 0 < len(cells) == self.num_cells)

    @property
    def exit_code(self) -> int:
        """1 for findings that a run did not refute, and if nothing could be read; 70 if a rule failed and nothing was found."""
        if any(finding.status != "refuted" for finding in self.findings) or self.nothing_read:
            return 1
        return 70 if any(problem.internal for problem in self.problems) else 0

    def counts(self, key: str) -> dict[str, int]:
        """Findings by `code` or by `kind`, chokes first, then the most frequent."""
        by_kind = sorted(self.findings, key=lambda finding: _KINDS.index(finding.kind or "choke"))
        names = [str(getattr(finding, key)) for finding in by_kind]
        return {name: names.count(name) for name in dict.fromkeys(names)}

    def to_dict(self) -> dict[str, Any]:
        """For `--json`: findings with their columns (from 1) and their fix as a diff."""
        rows = []
        for item in self.found:
            place = item.place
            end = {"end_line": place.end_line or place.line, "end_column": place.end_column + 1}
            fix = {"fixable": bool(item.edits), "diff": "\n".join(item.diff)}
            rows.append({**item.finding.to_dict(), "column": place.column + 1, **end, **fix})
        return {
            "findings": rows,
            "problems": [vars(problem) for problem in self.problems],
            "files": self.num_files,
            "cells": self.num_cells,
            "notes_left_out": self.num_hidden_notes,
            "by_rule": self.counts("code"),
            "by_kind": self.counts("kind"),
            "seconds": round(self.seconds, 3),
            "repaired": [{"path": file.path, "fixed": file.num_fixed, "diff": file.diff} for file in self.fixed],
            "written": self.written,
        }


def lint(
    paths: Iterable[str | Path] | str | Path,
    *,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    notes: bool = False,
    nits: bool = False,
    out: str | Path | None = None,
) -> LintResult:
    """What slows training code down, found by reading it: notebooks and scripts, PyTorch and Keras; nothing is run.

    Args:
        paths: Notebooks, scripts and folders of them.
        select: Only these rules, or rules of these stages, for instance host-sync or loading.
        ignore: Not these rules or stages.
        notes: Also findings that are true and hardly matter; else they are only counted, unless their rule is selected by name.
        nits: The same as `notes`.
        out: Workspace to keep the findings in, for the page of `unchoke.ui` (default: they are kept nowhere).

    Returns:
        Findings with their place, and the files that do not parse.

    Example:
        >>> unchoke.lint(["train.py"], select=["loading"]).num_files
        1
    """
    named = [str(paths)] if isinstance(paths, str | Path) else [str(path) for path in paths]
    result = run_lint(named, select=select, ignore=ignore, notes=notes or nits)
    if out is not None:
        keep_findings(result, named, out=out)
    return result


def run_lint(
    paths: Sequence[str],
    *,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    notes: bool = False,
    changed: bool = False,
    fix: bool = False,
    diff: bool = False,
    stdin: bytes | None = None,
    run_steps: int | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> LintResult:
    """Lint files and stdin; `fix` writes what can be fixed, `diff` only shows it, `run_steps` confirms findings by running."""
    begun = time.perf_counter()
    if run_steps is not None and stdin is not None:
        raise UsageError("--run of stdin", code="options-conflict", why="there is no file to run", try_="save it first")
    codes = _choose(select, ignore)
    loud = set(codes) if notes else set(select)  # a rule that is selected by its name shows its notes too
    options = [word for name, of in (("--select", select), ("--ignore", ignore)) if of for word in (name, ",".join(of))]
    result = LintResult(codes=codes, written=fix, words=[*paths, *options, *(["--notes"] if notes else [])])
    for path, data in _inputs(paths, changed, stdin, result.problems):
        read = _examine(parse_source(path, data), codes, loud)
        if (fix or diff) and any(item.edits for item in read.found):
            fixed, left = _fix(read, data, codes, loud)
            result.fixed += [fixed] if fixed is not None else []
            if fix and fixed is not None:
                write_bytes(Path(path), fixed.data)
                read = left
        found = _join_same_place(read.found)
        if run_steps is not None and (read.trains or path in paths):
            found = _confirm(read.source, found, run_steps, say)
        result.found += found
        result.problems += read.problems
        result.num_files += 1
        result.num_cells += len(read.source.cells)
        result.num_hidden_notes += read.num_hidden
    if not result.num_files and not changed:
        why = "there is no .py and no .ipynb file; hidden folders, build, dist and environments are skipped"
        where = f" in {', '.join(paths)}" if paths else ""
        raise UsageError(f"nothing to lint{where}", code="nothing-to-lint", why=why, try_="unchoke lint train.py")
    result.seconds = time.perf_counter() - begun
    return result


def lint_source(source: SourceFile) -> list[Finding]:
    """What every rule finds in a file that was read already, notes left out."""
    return [item.finding for item in _join_same_place(_examine(source, CODES, set()).found)]


def keep_findings(result: LintResult, paths: Sequence[str], *, out: str | Path) -> Path:
    """Write the findings into a workspace, for its page; those that were kept there before are replaced."""
    file = Path(out) / "logs" / "lint.json"
    typed = result.words or list(paths)
    findings = [finding.to_dict() for finding in result.findings]
    now = datetime.now(UTC).isoformat(timespec="seconds")
    write_json(file, {"words": typed, "when": now, **result.to_dict(), "findings": findings})
    return file


# Which rules and which files ----------------------------------------------------------------------------------------------


def _choose(select: Sequence[str], ignore: Sequence[str]) -> list[str]:
    """The codes to ask; the name of a stage stands for its rules."""
    stages = {code: catalogue()[code].stage for code in CODES if code in catalogue()}
    known = {*CODES, *stages.values()}
    for name in (*select, *ignore):
        if name not in known:
            near = get_close_matches(name, sorted(known), n=1)
            why = f"did you mean {near[0]}?" if near else f"there are {len(CODES)} rules"
            what, try_ = f"there is no rule or stage {name!r}", "unchoke lint --list-rules"
            raise UsageError(what, code="unknown-rule", why=why, try_=try_)
    wanted = [code for code in CODES if not select or {code, stages.get(code)} & set(select)]
    return [code for code in wanted if not {code, stages.get(code)} & set(ignore)]


def _inputs(paths: Sequence[str], changed: bool, stdin: bytes | None, problems: list[Problem]) -> Iterator[tuple[str, bytes]]:
    """Each file once, with its bytes; a file that cannot be opened is a problem."""
    if stdin is not None:  # a notebook can be piped in as well: a JSON object is one
        yield "stdin.ipynb" if stdin.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") else "stdin", stdin
    seen: set[Path] = set()
    for path in [Path(path) for path in paths if path != STDIN] or ([Path()] if changed else []):
        if not path.is_file() and not path.is_dir():
            code, why = ("not-a-file", "it is a pipe or a device") if path.exists() else ("no-such-file", "nothing lies there")
            raise UsageError(f"there is no file or folder {path}", code=code, why=why, try_="unchoke lint train.py")
        only = _changed_files(path) if changed else None
        for file in [path] if path.is_file() else _files_below(path, problems):
            if file in seen or (only is not None and file.resolve() not in only):
                continue
            seen.add(file)
            try:
                yield str(file), file.read_bytes()
            except OSError as error:
                problems.append(Problem(str(file), None, None, f"cannot be opened: {error.strerror or error}"))


def _files_below(folder: Path, problems: list[Problem]) -> Iterator[Path]:
    """Notebooks and scripts in the order of their names; hidden folders, environments and build outputs are skipped."""
    try:
        for entry in sorted(folder.iterdir()):
            if entry.name.startswith(".") or entry.name in _SKIPPED_FOLDERS:
                continue
            if entry.is_dir() and not entry.is_symlink() and not (entry / "pyvenv.cfg").exists():
                yield from _files_below(entry, problems)
            elif entry.name.endswith(SUFFIXES) and entry.is_file():
                yield entry
    except OSError as error:
        problems.append(Problem(str(folder), None, None, f"cannot be listed: {error.strerror or error}"))


def _changed_files(path: Path) -> set[Path]:
    """The files of the repository around `path` that differ from HEAD, and those that git does not know yet."""
    folder = path if path.is_dir() else path.parent
    git = ["git", "--no-optional-locks", "-C", str(folder)]
    try:
        top = subprocess.run([*git, "rev-parse", "--show-toplevel"], capture_output=True, check=True).stdout
        status = [*git, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all"]
        listed = subprocess.run(status, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        why = os.fsdecode(getattr(error, "stderr", None) or b"").strip() or str(error)
        raise UsageError(f"{folder} has no git status", code="not-a-repository", why=why, try_="leave --changed out") from error
    root = Path(os.fsdecode(top.rstrip(b"\n")))
    return {(root / os.fsdecode(entry[3:])).resolve() for entry in listed.split(b"\0") if entry}


# One file -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Read:
    """One file after all rules were asked."""

    source: SourceFile
    found: list[Found]
    problems: list[Problem]
    num_hidden: int
    trains: bool


@contextmanager
def _uncollected() -> Iterator[None]:
    """No garbage collection: trees and answers are all in use until a file is done, and there are many to search."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@_uncollected()
def _examine(source: SourceFile, codes: Sequence[str], loud: set[str]) -> _Read:
    """Ask the rules about a file and about the scripts that its cells write. Only rules in `loud` show their notes."""
    problems = [Problem(source.path, one.cell, one.line, one.message) for one in source.problems]
    marks, outputs = _ignored_lines(source), read_outputs(source)
    found: dict[tuple[str, int | None, int], Found] = {}
    trains = False
    for part in (source, *(replace(script, scripts=source.scripts) for script in source.scripts)):
        try:
            case = make_case(read_program(part), outputs)
            trains = trains or any(own_node(case.program, one) is not None for one in case.trainings)
        except Exception as error:
            problems.append(_failure(source.path, "reading", error))
            continue
        for code in codes:
            try:
                hits = [(hit, list(_places(case, hit, marks, code))) for hit in load_rule(code)(case)]
            except Exception as error:
                problems.append(_failure(source.path, f"the rule {code}", error))
                continue
            for hit, places in hits:
                key = (code, places[0].cell, places[0].line) if places else None
                if key is not None and (key not in found or (found[key].finding.kind == "note" and hit.kind != "note")):
                    found[key] = _found(source, code, hit, places)
        case.program.memory.clear()  # answers refer to the program: without them it is freed at once
    every = sorted(found.values(), key=lambda item: (item.place, CODES.index(item.code)))
    shown = [item for item in every if item.finding.kind != "note" or item.code in loud]
    return _Read(source, shown, problems, len(every) - len(shown), trains)


def _fix(read: _Read, data: bytes, codes: Sequence[str], loud: set[str]) -> tuple[FixedFile | None, _Read]:
    """The file with every fix whose proof holds: it still parses, the finding is gone, and no other has come."""
    now, refused, num_fixed = read, set(), 0
    while item := next((one for one in now.found if one.edits and (one.code, one.place) not in refused), None):
        new = apply(now.source, data, item.edits)
        after = _examine(parse_source(read.source.path, new), codes, loud) if new is not None else now
        if new is None or len(after.found) >= len(now.found) or len(after.problems) > len(read.problems):
            refused.add((item.code, item.place))
        else:  # findings become fewer, so this ends
            now, data, num_fixed = after, new, num_fixed + 1
    diff = diff_text(read.source, now.source)
    return (FixedFile(read.source.path, data, diff, num_fixed) if num_fixed else None), now


def _failure(path: str, what: str, error: Exception) -> Problem:
    if isinstance(error, RecursionError):
        return Problem(path, None, None, f"{what} gave up: the code is nested too deeply")
    shown = "".join(traceback.format_exception(error))
    return Problem(path, None, None, f"{what} failed\n{shown.rstrip()}", internal=True)


def _places(case: Case, hit: Hit, marks: dict[tuple[int | None, int], set[str]], code: str) -> Iterator[CodePlace]:
    """Where a hit stands in this file, without lines that the author marked."""
    for node in (hit.node, *hit.further):
        if case.program.is_own(node):
            place = case.program.place(node)
            named = [marks[place.cell, line] for line in (place.line, place.end_line) if (place.cell, line) in marks]
            if not any(not codes or code in codes for codes in named):
                yield place


def _ignored_lines(source: SourceFile) -> dict[tuple[int | None, int], set[str]]:
    """Lines with `# noqa` or `# unchoke: ignore`, and the codes named there; no code means every rule."""
    marks = {}
    for cell in source.cells:
        if cell.kind == "code" and _NOQA.search(cell.text):
            for number, line in enumerate(cell.lines, start=1):
                if mark := _NOQA.search(line):
                    marks[cell.number, number] = set(re.findall(r"[\w-]+", (mark["codes"] or mark["named"] or "").lower()))
    return marks


def _found(source: SourceFile, code: str, hit: Hit, places: list[CodePlace]) -> Found:
    first, *others = places
    evidence = dict(hit.evidence)
    lines = dict.fromkeys((place.cell, place.line) for place in others)
    if further := [{"cell": cell, "line": line} for cell, line in lines if (cell, line) != (first.cell, first.line)]:
        evidence["further"] = further
    cause = catalogue()[code]
    finding = Finding(
        code, hit.message, "info" if hit.kind == "note" else "warning", path=source.path, line=first.line, cell=first.cell,
        stage=cause.stage, evidence=evidence, fix=hit.fix or cause.fix, paths=(source.path,),
        kind=hit.kind, basis=hit.basis,
    )  # fmt: skip
    cell = next(cell for cell in source.cells if cell.number == first.cell)
    return Found(finding, first, cell, hit.edits, hit.shown)


def _join_same_place(found: list[Found]) -> list[Found]:
    """Findings of one stage at one line are one finding: the most serious, which names the others under `also`."""
    groups: dict[tuple[int | None, int, str], list[Found]] = {}
    for item in found:
        groups.setdefault((item.place.cell, item.place.line, item.finding.stage), []).append(item)
    joined = []
    for group in groups.values():
        lead, *rest = sorted(group, key=lambda item: (_KINDS.index(item.finding.kind or "choke"), not item.edits))
        if rest:
            also = [{name: getattr(item.finding, name) for name in ("code", "cell", "line", "message", "fix")} for item in rest]
            lead = replace(lead, finding=replace(lead.finding, evidence={**lead.finding.evidence, "also": also}))
        joined.append(lead)
    return joined


def _confirm(source: SourceFile, found: list[Found], steps: int, say: Callable[[str], None]) -> list[Found]:
    """The findings after a run of the file, each with its status, and those that only the run shows."""
    from unchoke_doctor.lint_run import confirm

    known = {(item.code, item.place.cell, item.place.line): item for item in found}
    cells = {cell.number: cell for cell in source.cells}
    after = []
    for finding in confirm(source, [item.finding for item in found], steps, say):
        place = CodePlace(finding.cell, finding.line or 1)
        same = known.get((finding.code, place.cell, place.line)) or Found(finding, place, cells.get(place.cell))
        after.append(replace(same, finding=finding))
    return after
