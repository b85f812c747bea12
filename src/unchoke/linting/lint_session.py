"""What `unchoke lint` does in one go: read files and stdin, run the rules, repair what was asked to be repaired, take the time.

In come paths as typed, out goes a `LintSession` with its exit code and its JSON form. Reading is left to
`lint_engine`, repairing to `fixing`; nothing is shown here, and nothing is written but the files that are to be repaired.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from unchoke.code.source import parse_source
from unchoke.core import atomic
from unchoke.core.errors import UsageError
from unchoke.core.workspace import Workspace
from unchoke.linting.fixing import FileRepair, line_diff, put_in_place, repair
from unchoke.linting.lint_engine import LintResult, chosen_rules, join_results, lint, lint_file
from unchoke.linting.rule import KINDS
from unchoke.linting.rules import LoadedRule

STDIN = "-"
_STDIN_NAME = "stdin"


@dataclass(frozen=True)
class LintSession:
    """`result` is what is there at the end: after the repairs, if they were `written`."""

    paths: list[str]
    result: LintResult
    rules: list[LoadedRule]
    seconds: float
    repaired: list[FileRepair] = field(default_factory=list)
    written: bool = False
    chosen: list[str] = field(default_factory=list)  # --select, --ignore and --nits as they would be typed again

    @property
    def exit_code(self) -> int:
        """1 for findings, and where not one cell could be read: "nothing found" would be no answer then."""
        return 1 if self.result.found or self.nothing_read else 0

    @property
    def nothing_read(self) -> bool:
        """Not one file or cell could be read."""
        unread = [problem for problem in self.result.problems if not problem.internal]
        whole = {problem.path for problem in unread if problem.cell is None}
        cells = {(problem.path, problem.cell) for problem in unread if problem.cell is not None}
        return len(whole) == self.result.files or bool(cells and len(cells) == self.result.cells)

    @property
    def by_rule(self) -> Counter[str]:
        """How many of each rule, those with chokes first, then those with risks."""
        first = {item.rule.code: item.kind for item in sorted(self.result.found, key=lambda item: -KINDS.index(item.kind))}
        counts = Counter(item.rule.code for item in self.result.found)
        return Counter(dict(sorted(counts.items(), key=lambda pair: (KINDS.index(first[pair[0]]), -pair[1]))))

    @property
    def by_kind(self) -> Counter[str]:
        counts = Counter(item.kind for item in self.result.found)
        return Counter({kind: counts[kind] for kind in KINDS if counts[kind]})

    def to_dict(self) -> dict[str, Any]:
        """Every finding with its whole place (columns from 1), the number by rule, and what was repaired."""
        value = self.result.to_dict()
        for item, finding in zip(self.result.found, value["findings"], strict=True):
            place = item.place
            finding |= {"column": place.column + 1, "end_line": place.end_line or place.line, "end_column": place.end_column + 1}
            finding["fixable"] = bool(item.hit.all_edits)
            finding["diff"] = "\n".join(line_diff(item))
        repaired = [file.to_dict() for file in self.repaired]
        return {
            **value,
            "by_rule": self.by_rule,
            "by_kind": self.by_kind,
            "seconds": self.seconds,
            "repaired": repaired,
            "written": self.written,
        }


def run_lint(
    paths: Sequence[str],
    *,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    nits: bool = False,
    fix: bool = False,
    diff: bool = False,
    stdin: bytes | None = None,
) -> LintSession:
    """Lint `paths` and, where given, what came on stdin; with `diff` say what could be repaired, with `fix` do it."""
    begun = time.perf_counter()
    rules = chosen_rules(select, ignore, nits=nits)
    files = [path for path in paths if path != STDIN]
    result = lint(files, select=select, ignore=ignore, nits=nits) if files else LintResult()
    if stdin is not None:
        source = replace(parse_source(_name_of(stdin), stdin), path=_STDIN_NAME)
        result = join_results([result, lint_file(source, rules)])
    if not result.files:
        why = "there is no .py and no .ipynb file; hidden folders, build, dist and environments are passed over"
        raise UsageError(
            f"nothing to lint in {', '.join(files)}",
            code="nothing-to-lint",
            why=why,
            try_="name a notebook, a script or another folder",
        )
    repaired = _repaired(result, rules, stdin) if fix or diff else {}
    if fix:
        for file in repaired.values():
            put_in_place(file)
        result = _left(result, repaired)
    chosen = [word for name, codes in (("--select", select), ("--ignore", ignore)) if codes for word in (name, ",".join(codes))]
    chosen += ["--nits"] if nits else []
    return LintSession(list(paths), result, rules, time.perf_counter() - begun, list(repaired.values()), fix, chosen)


def keep_findings(result: LintResult, words: Sequence[str], *, out: Path | str) -> Path:
    """Write what was found into a workspace, for its page; `words` are what was typed. What was kept there before is replaced."""
    file = Workspace(Path(out)).lint_file
    atomic.write_json(file, {"words": [*words], "when": datetime.now(UTC).isoformat(timespec="seconds"), **result.to_dict()})
    return file


def _name_of(stdin: bytes) -> str:
    """A notebook can be piped in too: a JSON object is one, and no script worth reading."""
    return f"{_STDIN_NAME}.ipynb" if stdin.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") else f"{_STDIN_NAME}.py"


def _repaired(result: LintResult, rules: Sequence[LoadedRule], stdin: bytes | None) -> dict[str, FileRepair]:
    """Every file that has a mechanical fix, repaired in memory."""
    done: dict[str, FileRepair] = {}
    for path in dict.fromkeys(item.source.path for item in result.found if item.hit.all_edits):
        if path == _STDIN_NAME and stdin is not None:
            file = repair(_name_of(stdin), stdin, rules)
        else:
            file = repair(path, Path(path).read_bytes(), rules)
        if file is not None:
            done[path] = file
    return done


def _left(result: LintResult, repaired: Mapping[str, FileRepair]) -> LintResult:
    """The result after the repairs, its files in the same order."""
    by_path: dict[str, list[Any]] = {}
    for item in result.found:
        by_path.setdefault(item.source.path, []).append(item)
    found = [item for path, items in by_path.items() for item in (repaired[path].found if path in repaired else items)]
    problems = [problem for problem in result.problems if problem.path not in repaired]
    return replace(result, found=found, problems=problems + [problem for file in repaired.values() for problem in file.problems])
