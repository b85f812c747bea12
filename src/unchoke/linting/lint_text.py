"""What lint found, as plain text: each finding with its line and a caret under it, then the sum. Returns text, prints nothing.

In comes what lint found and repaired, out goes text; also the list of rules, and one rule's page. Knows nothing of other formats.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence

from unchoke.code.magics import split_lines
from unchoke.code.source import CodePlace, SourceFile
from unchoke.core.units import format_count, format_seconds
from unchoke.linting.fixing import line_diff
from unchoke.linting.lint_engine import FileProblem, LintFinding, LintResult
from unchoke.linting.lint_session import LintSession
from unchoke.linting.rule import Rule
from unchoke.linting.rules import LoadedRule
from unchoke.reports.layout import columns, visible, visible_block, width, wrap

_WIDEST = 100  # characters of a source line that are shown
_BEFORE = 40  # of them before the caret, where the line had to be cut
_TAB = "    "
_LABEL = 9
_LONGEST_DIFF = 6  # lines; what is longer is for --diff
_LONGEST_LINE = 160
_FRAMEWORKS = {"torch": "PyTorch", "keras": "TensorFlow/Keras"}
_KINDS = {"choke": "choke point", "risk": "risk", "nit": "nit"}


def render_lint(linted: LintSession) -> str:
    """What was or could be repaired, every finding that is left, what could not be read, and the sum.

    Where fixes are only shown, the diff stands for the findings it would mend.
    """
    result = linted.result
    shown = [item for item in result.found if not (linted.repaired and not linted.written and item.hit.all_edits)]
    blocks = [file.diff.rstrip("\n") for file in linted.repaired]
    blocks += [render_finding(item) for item in shown]
    blocks += ["\n".join(_problem(problem) for problem in result.problems)] if result.problems else []
    return "\n\n".join([*blocks, render_sum(linted)])


def render_finding(item: LintFinding) -> str:
    """``train.ipynb:cell 3:12:9: code: title``, the line with a caret, and what to do about it."""
    finding = item.finding
    lines = [f"{location(finding.path or '', item.place)}: {finding.code}: {visible(item.rule.title)}"]
    lines[0] += "" if item.kind == "choke" else f" ({item.kind})"
    lines += _excerpt(item.source, item.place)
    lines.append(wrap(finding.message, indent="  "))
    claim = "" if item.hit.gain or not item.rule.claim else f" (measured: docs/claims.md, {item.rule.claim})"
    fix = f"{finding.fix} (--fix does it)" if item.hit.all_edits else finding.fix
    where = ", ".join(item.rule.devices) if item.kind == "risk" else ""
    rows = (("shows on", where), ("gain", f"{finding.expected_gain}{claim}"), ("fix", fix))
    lines += [_labelled(word, text) for word, text in rows if text]
    lines += _diff_lines(item)
    return "\n".join([*lines, *([_labelled("command", finding.command)] if finding.command else [])])


def _diff_lines(item: LintFinding) -> list[str]:
    """Under the fix, the author's lines before and after; a line that stands above already, with its caret, is not said again."""
    lines = line_diff(item)
    above = source_line(item.source, item.place)
    shown = [line for line in lines if line != f"- {above}"]
    start = min((len(line) - 2 - len(line[2:].lstrip()) for line in lines if line[2:].strip()), default=0)
    cut = [f"{line[:2]}{_spelled(line[2 + start :])}"[:_LONGEST_LINE] for line in shown[:_LONGEST_DIFF]]
    return [f"{' ' * (_LABEL + 2)}{line}".rstrip() for line in cut]


def location(path: str, place: CodePlace) -> str:
    """``file:line:column``, with the cell between for a notebook; columns count from 1, as editors do."""
    cell = "" if place.cell is None else f"cell {place.cell}:"
    return f"{visible(path)}:{cell}{place.line}:{place.column + 1}"


def render_sum(linted: LintSession) -> str:
    """How many of which rule, what was read and how long it took, and the next command."""
    result, counts = linted.result, linted.by_rule
    num_files = len({item.finding.path for item in result.found})
    gone, mended = sum(len(file.applied) for file in linted.repaired), format_count(len(linted.repaired), "file")
    left, them = result.nits_left_out, "it" if result.nits_left_out == 1 else "them"
    kinds = ", ".join(format_count(count, _KINDS[kind]) for kind, count in linted.by_kind.items())
    nothing = "nothing could be read, so nothing was looked for" if linted.nothing_read else "nothing"
    found = f"{kinds} in {format_count(num_files, 'file')}" if counts else nothing
    rows = [
        ("fixed" if linted.written else "fixable", f"{format_count(gone, 'choke point')} in {mended}" if gone else ""),
        ("found", found),
        ("rules", wrap(", ".join(f"{count} {code}" for code, count in counts.items()), indent=" " * _LABEL).lstrip()),
        ("nits", f"{left:,} that hardly {'matters' if left == 1 else 'matter'} left out: --nits shows {them}" if left else ""),
        ("read", _read(result, linted.seconds)),
        ("next", next_command(linted)),
    ]
    return "\n".join(f"{word:<{_LABEL}}{visible_block(text)}" for word, text in rows if text)


def next_command(linted: LintSession) -> str:
    """See or write the fixes; otherwise look at a notebook as a whole, or read up on what was found most."""
    found = linted.result.found
    if not found:
        return ""
    if any(item.hit.all_edits for item in found) and not linted.written:
        return shlex.join(["unchoke", "lint", *linted.paths, *linted.chosen, "--fix" if linted.repaired else "--diff"])
    notebooks = Counter(item.source.path for item in found if item.source.is_notebook)
    if notebooks:
        return f"unchoke notebook {shlex.quote(notebooks.most_common(1)[0][0])}"
    return f"unchoke lint --explain {next(iter(linted.by_rule))}"


def render_statistics(linted: LintSession) -> str:
    """A line for each rule that found something, chokes before risks and the most frequent first, and the sum."""
    by_rule: dict[str, list[LintFinding]] = {}
    for item in linted.result.found:
        by_rule.setdefault(item.rule.code, []).append(item)
    rows = []
    for code in linted.by_rule:
        items = by_rule[code]
        fixable, files = sum(bool(item.hit.all_edits) for item in items), len({item.finding.path for item in items})
        rows.append((f"{len(items):,}", f"{files:,}", f"{fixable:,}" if fixable else "-", code, items[0].rule.title))
    table = columns(rows, header=("findings", "files", "--fix", "rule", "what it is"), right=(0, 1, 2)) if rows else ""
    return "\n\n".join(part for part in (table, render_sum(linted)) if part)


def render_rules(rules: Sequence[LoadedRule]) -> str:
    """All rules in a table."""
    every = [loaded.rule for loaded in rules]
    rows = [(rule.code, rule.group, rule.kind, "yes" if rule.fixable else "-", rule.title) for rule in every]
    table = columns(rows, header=("rule", "group", "kind", "--fix", "what it is"))
    return f"{table}\n\nnext   unchoke lint --explain {rows[0][0]}"


def render_rule(loaded: LoadedRule) -> str:
    """A rule's page, with what is known of it in front."""
    rule = loaded.rule
    facts = "\n".join(f"{word:<10}{visible(text)}" for word, text in rule_facts(rule, f"docs/claims.md, {rule.claim}"))
    return f"{rule.code}: {rule.title}\n\n{facts}\n\n{loaded.page}"


def rule_facts(rule: Rule, claim: str) -> list[tuple[str, str]]:
    """What a rule says of itself in a word or two, as label and text; what it leaves open is left out."""
    measured = f"measured: {claim}" if rule.claim else "unmeasured"
    facts = [
        ("group", rule.group),
        ("kind", rule.kind),
        ("stage", rule.stage),
        ("concerns", ", ".join(_FRAMEWORKS.get(name, name) for name in rule.frameworks)),
        ("devices", ", ".join(rule.devices)),
        ("since", rule.since),
        ("gain", f"{rule.gain} ({measured})" if rule.gain else measured),
        ("command", rule.command),
        ("--fix", "rewrites it" if rule.fixable else ""),
    ]
    return [(word, text) for word, text in facts if text]


def source_line(source: SourceFile, place: CodePlace) -> str | None:
    """The line at `place` as its author wrote it; None where there is none."""
    for cell in source.cells:
        if cell.number == place.cell:
            lines = split_lines(cell.text)
            return lines[place.line - 1] if 0 < place.line <= len(lines) else None
    return None


def _excerpt(source: SourceFile, place: CodePlace) -> list[str]:
    """The line and the carets under it."""
    line = source_line(source, place)
    if line is None:
        return []
    end = place.end_column if place.end_line in (0, place.line) and place.end_column > place.column else len(line.rstrip())
    shown, before, marked = _cut(line, min(place.column, len(line)), end)
    gutter = f"{place.line:>5}"
    return [f"{gutter} | {shown}", f"{'':>5} | {' ' * before}{'^' * marked}"]


def _cut(line: str, begin: int, end: int) -> tuple[str, int, int]:
    """What is shown of the line, how far in the caret begins, and how many carets there are."""
    start = begin - _BEFORE if begin > _WIDEST - _BEFORE else 0
    stop = min(len(line), start + _WIDEST)
    left = "…" if start else ""
    before = left + _spelled(line[start:begin])
    marked = _spelled(line[begin : min(end, stop)])
    rest = _spelled(line[min(end, stop) : stop]) if end < stop else ""
    return (before + marked + rest).rstrip() + ("…" if stop < len(line) else ""), width(before), max(1, width(marked))


def _spelled(text: str) -> str:
    return visible(text, keep="\t").replace("\t", _TAB)


def _labelled(word: str, text: str) -> str:
    """A word in its column and the text beside it, broken to fit; commands stay whole."""
    return f"  {word:<{_LABEL}}{wrap(text, indent=' ' * (_LABEL + 2)).lstrip()}"


def _problem(problem: FileProblem) -> str:
    where = [visible(problem.path)]
    where += [f"cell {problem.cell}"] if problem.cell is not None else []
    where += [str(problem.line)] if problem.line is not None else []
    word = "a bug in unchoke, please report it" if problem.internal else "not read"
    return f"{':'.join(where)}: {word}: {visible(problem.message)}"


def _read(result: LintResult, seconds: float) -> str:
    files, cells = format_count(result.files, "file"), format_count(result.cells, "cell")
    unread = sum(not problem.internal for problem in result.problems)
    passed = f", {unread:,} of them could not be read" if unread else ""
    return f"{files}, {cells}{passed}, in {format_seconds(seconds)}"
