"""The commands about other people's code: `lint PATHS`, which reads it, and `notebook FILE.ipynb`, cell by cell."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import unchoke
from unchoke.cli.options import Json, Out
from unchoke.cli.showing import PlainResult, Result, show
from unchoke.core.errors import UsageError
from unchoke.core.events import Note

if TYPE_CHECKING:
    from unchoke.core.output_file import OutputFile
    from unchoke.linting.lint_session import LintSession
    from unchoke.reports.console import Console

STDIN = "-"


class ReportForm(StrEnum):
    """What a report is written as."""

    text = "text"
    json = "json"
    sarif = "sarif"
    github = "github"


@dataclass(frozen=True)
class LintOptions:
    """What was typed, apart from the two questions about rules."""

    paths: list[str]
    select: list[str]
    ignore: list[str]
    nits: bool
    fix: bool
    diff: bool
    form: ReportForm
    output: str | None
    statistics: bool
    out: str | None


def lint(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATHS", help="Notebooks, scripts and folders of them; - is a script on stdin.", show_default=False
        ),
    ] = None,
    select: Annotated[
        list[str] | None, typer.Option("--select", metavar="RULES", help="Only these rules or groups: host-sync,input.")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option("--ignore", metavar="RULES", help="Not these rules or groups.")] = None,
    nits: Annotated[bool, typer.Option("--nits", help="Also what is true and hardly matters; counted otherwise.")] = False,
    fix: Annotated[bool, typer.Option("--fix", help="Write the mechanical fixes, and show what changed.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Show what --fix would change, and write nothing.")] = False,
    form: Annotated[
        ReportForm | None, typer.Option("--format", help="text, json, sarif or github (default text).", show_default=False)
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", metavar="FILE", help="Write the report there, and the sum to stdout.")
    ] = None,
    statistics: Annotated[bool, typer.Option("--statistics", help="How often each rule, instead of every finding.")] = False,
    explain: Annotated[
        str | None, typer.Option("--explain", metavar="RULE", help="The page of a rule, and nothing else.")
    ] = None,
    list_rules: Annotated[bool, typer.Option("--list-rules", help="All rules, and nothing else.")] = False,
    out: Annotated[
        str | None, typer.Option("--out", metavar="WORKSPACE", help="Keep what is found there, for the page of `unchoke ui`.")
    ] = None,
    json: Json = False,
) -> None:
    """Choke points in training code, found by reading it: notebooks and scripts, PyTorch and Keras; nothing is run.

    Exits 1 if it found any. A line marked `# noqa` or `# noqa: RULE` is left out. What does not parse is named and passed over.
    """

    def work(console: Console) -> Result:
        if explain is not None:
            return _explain(explain)
        if list_rules:
            return _list_rules()
        from unchoke.linting.rules import split_names

        rules = split_names(select), split_names(ignore)
        typed = LintOptions(list(paths or ()), *rules, nits, fix, diff, _form(form, json), output, statistics, out)
        _refuse(typed, json)
        return _lint(typed, console)

    to_stdout = output in (None, STDIN)
    show("lint", json or (form == ReportForm.json and to_stdout), work)


def _form(form: ReportForm | None, json: bool) -> ReportForm:
    return form or (ReportForm.json if json else ReportForm.text)


def _refuse(asked: LintOptions, json: bool) -> None:
    """What cannot be meant: said before anything is read."""
    to_stdout = asked.output in (None, STDIN)
    for_machines = asked.form in (ReportForm.sarif, ReportForm.github)
    if not asked.paths:
        why = "it reads notebooks, scripts and folders, and none was named"
        raise UsageError("nothing to lint", code="nothing-to-lint", why=why, try_="unchoke lint .")
    if asked.fix and asked.diff:
        why = "the one writes what the other only shows"
        raise UsageError("--fix and --diff at once", code="options-conflict", why=why, try_="--diff first, then --fix")
    if asked.fix and STDIN in asked.paths:
        raise UsageError(
            "--fix of stdin", code="fix-needs-file", why="there is no file to write to", try_="--diff shows the fixes"
        )
    if for_machines and (asked.statistics or asked.diff):
        option = "--statistics" if asked.statistics else "--diff"
        why = f"{asked.form} holds findings and nothing else"
        raise UsageError(
            f"{option} with --format {asked.form}",
            code="options-conflict",
            why=why,
            try_=f"{option} without --format, or with --json",
        )
    if json and asked.form != ReportForm.json and to_stdout:
        why = "each of them is what goes to stdout"
        raise UsageError(
            f"--json and --format {asked.form} at once",
            code="options-conflict",
            why=why,
            try_="give one of them, or --output FILE",
        )


def _explain(code: str) -> Result:
    from unchoke.linting.lint_text import render_rule
    from unchoke.linting.rules import rule_named

    loaded = rule_named(code)
    return PlainResult({**vars(loaded.rule), "page": loaded.page}, render_rule(loaded))


def _list_rules() -> Result:
    from unchoke.linting.lint_text import render_rules
    from unchoke.linting.rules import all_rules

    rules = all_rules()
    return PlainResult({"rules": [vars(loaded.rule) for loaded in rules]}, render_rules(rules))


def _lint(asked: LintOptions, console: Console) -> Result:
    from unchoke.core.workspace import out_option
    from unchoke.linting.lint_session import keep_findings, run_lint
    from unchoke.linting.lint_text import render_sum

    if asked.output is not None and asked.output != STDIN:
        _output(asked)  # refused before anything is read
    stdin = sys.stdin.buffer.read() if STDIN in asked.paths else None
    chosen = {"select": asked.select, "ignore": asked.ignore}
    linted = run_lint(asked.paths, **chosen, nits=asked.nits, fix=asked.fix, diff=asked.diff, stdin=stdin)
    text = _rendered(asked, linted)
    if asked.output is not None and asked.output != STDIN:
        _output(asked).write_text(f"{text}\n")
        text = f"{render_sum(linted)}\nwrote  {asked.output}"
    elif linted.written and linted.repaired and asked.form in (ReportForm.sarif, ReportForm.github):
        console.on_event(Note(f"fixed {sum(len(file.applied) for file in linted.repaired)} in {len(linted.repaired)} files"))
    if asked.out is not None:
        kept = keep_findings(linted.result, [*asked.paths, *linted.chosen], out=asked.out)
        console.on_event(Note(f"kept in {kept}: unchoke ui{out_option(Path(asked.out))} shows it, under Speed"))
    return PlainResult(linted.to_dict(), text, linted.exit_code)


def _rendered(asked: LintOptions, linted: LintSession) -> str:
    """The report in the form asked for."""
    from unchoke.linting import exchange, lint_text
    from unchoke.reports import json

    if asked.form == ReportForm.sarif:
        return exchange.render_sarif(linted.result, linted.rules)
    if asked.form == ReportForm.github:
        return exchange.render_github(linted.result)
    if asked.form == ReportForm.json:
        record = {"schema": json.SCHEMA, "command": "lint", "ok": linted.exit_code == 0, "result": linted.to_dict()}
        return json.dump_line(record)
    return lint_text.render_statistics(linted) if asked.statistics else lint_text.render_lint(linted)


def _output(asked: LintOptions) -> OutputFile:
    from unchoke.core.output_file import output_file

    read = [path for path in asked.paths if path != STDIN]
    return output_file(asked.output or "", option="--output", example="report.txt", sources=read)


def notebook(
    file: Annotated[Path, typer.Argument(metavar="FILE.ipynb", help="The notebook. It is read, and never written.")],
    run: Annotated[bool, typer.Option("--run", help="Run it in a fresh kernel and measure every cell.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="The longest a cell may run; then it is interrupted.")
    ] = 600.0,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Go on after a cell that raised or was interrupted (default: stop there).")
    ] = False,
    cwd: Annotated[
        Path | None, typer.Option("--cwd", help="Folder to run in (default: the notebook's own).", show_default=False)
    ] = None,
    kernel: Annotated[
        str | None, typer.Option("--kernel", help="Kernel to run it in (default: the one it names).", show_default=False)
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="The table as Markdown.")] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page of it: one file, no network.", show_default=False)
    ] = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """A notebook cell by cell: what it does, its choke points, what it costs; keep, optimise, segment or eliminate it.

    With --run, exits 1 if a cell raised, ran over its time or ended the kernel. Ctrl-C keeps what was measured.
    """

    def work(console: Console) -> Result:
        if markdown and json:
            why = "each of them is what goes to stdout"
            raise UsageError("--markdown and --json at once", code="options-conflict", why=why, try_="give one of them")
        own: dict[str, Any] = {"run": run, "timeout_s": timeout, "keep_going": keep_going, "cwd": cwd, "kernel": kernel}
        report = unchoke.notebook(file, html=html, out=out, on_event=console.on_event, **own)
        return PlainResult(report.to_dict(), report.to_markdown() if markdown else report.to_text(), report.exit_code)

    show("notebook", json, work)
