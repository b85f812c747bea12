"""`python -m unchoke_doctor lint|notebook|profile …`; `unchoke` hands the same words on to `main`.

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 findings or a failed cell, 2 usage, 3 this machine cannot,
70 our bug, 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
import traceback
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from unchoke_doctor.causes import catalogue, cause
from unchoke_doctor.errors import Interrupted, UnchokeError, UsageError
from unchoke_doctor.files import check_output, write_text

SCHEMA, OUR_BUG = 1, 70
STDIN = "-"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Answer:
    """What a command shows: a result for `--json`, the same as text, and the exit code.

    `as_json` settles which of the two goes to stdout where the options alone do not.
    """

    def __init__(self, result: dict[str, Any], text: str, exit_code: int = 0, *, as_json: bool | None = None) -> None:
        self.result, self.text, self.exit_code, self.as_json = result, text, exit_code, as_json


def main(arguments: Sequence[str] | None = None, *, prog: str = "unchoke") -> int:
    """Run one command as it was typed; the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in (words[: words.index("--")] if "--" in words else words)
    name = words[0] if words else ""
    try:
        typed = parse_words(words, prog)
        as_json = typed.json or getattr(typed, "format", None) == "json"
        answer: Answer = typed.work(typed)
        if answer.as_json if answer.as_json is not None else as_json:
            _print(json.dumps({"schema": SCHEMA, "command": name, "ok": answer.exit_code == 0, "result": answer.result}))
        elif answer.text:
            _print(answer.text)
        return answer.exit_code
    except SystemExit as ended:  # argparse, after --help
        return int(ended.code or 0)
    except UnchokeError as error:
        return _show_error(name, error, as_json)
    except KeyboardInterrupt:
        why = "Ctrl-C, before there was a result to keep"
        return _show_error(name, Interrupted("stopped on request", code="interrupted", why=why, try_="run it again"), as_json)
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Interrupted.exit_code
    except Exception:
        print(f"{traceback.format_exc()}\nthis is a bug in unchoke: please report the lines above", file=sys.stderr)
        return OUR_BUG


def _print(text: str) -> None:
    """To stdout, with control characters of other people's files made visible."""
    shown = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text.rstrip("\n"))
    encoding = sys.stdout.encoding or "utf-8"
    print(shown.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def _say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


def _show_error(command: str, error: UnchokeError, as_json: bool) -> int:
    if as_json:
        lines = {"code": error.code, "what": error.what, "why": error.why, "try": error.try_, "exit_code": error.exit_code}
        _print(json.dumps({"schema": SCHEMA, "command": command, "ok": False, "error": lines}))
    else:
        _say(f"error  {error.what} [{error.code}]\nwhy    {error.why}\ntry    {error.try_}")
    return error.exit_code


class _Parser(argparse.ArgumentParser):
    """argparse, with its complaints as errors of ours."""

    def error(self, message: str) -> NoReturn:
        why = "the options are in --help"
        raise UsageError(f"{self.prog}: {message}", code="bad-options", why=why, try_=f"{self.prog} --help")


def parse_words(words: list[str], prog: str) -> argparse.Namespace:
    """What was typed, checked; words after `--` are the command of `profile`."""
    parser = build_parser(prog)
    command = words[words.index("--") + 1 :] if words[:1] == ["profile"] and "--" in words else []
    own = words[: words.index("--")] if command else words
    typed, unknown = parser.parse_known_args(own)
    options = [word for word in unknown if word.startswith("-")]
    if options:
        known = [option for action in parser.commands[words[0]]._actions for option in action.option_strings]  # type: ignore[attr-defined]
        near = get_close_matches(options[0].partition("=")[0], known, n=1)
        corrected = shlex.join([prog, *(near[0] if word == options[0] else word for word in words)]) if near else ""
        raise UsageError(
            f"there is no option {options[0]}",
            code="no-such-option",
            why=f"did you mean {near[0]}?" if near else f"{prog} {words[0]} has {len(known)} options",
            try_=corrected or f"{prog} {words[0]} --help",
        )
    if unknown:
        example = f"{prog} profile -- {shlex.join(unknown)}" if words[0] == "profile" else f"{prog} {words[0]} --help"
        raise UsageError(f"{unknown[0]!r} was not expected", code="bad-options", why="one word too many", try_=example)
    typed.command = command
    return typed


def build_parser(prog: str = "unchoke") -> argparse.ArgumentParser:
    """The three commands with their options; `parser.commands` holds the parser of each."""
    parser = _Parser(prog=prog, description="Read, run and explain training code.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    described: dict[str, Callable[[Any], None]] = {
        "lint": _lint_options,
        "notebook": _notebook_options,
        "profile": _profile_options,
    }
    parser.commands = {}  # type: ignore[attr-defined]
    for name, describe in described.items():
        one = commands.add_parser(name, help=(describe.__doc__ or "").split("\n")[0], description=describe.__doc__)
        parser.commands[name] = one  # type: ignore[attr-defined]
        describe(one)
        one.add_argument("--help-all", action="help", help=argparse.SUPPRESS)
        one.add_argument("--json", action="store_true", help="The result as one JSON object.")
    return parser


def _lint_options(parser: argparse.ArgumentParser) -> None:
    """What slows training code down, found by reading it. Exits 1 if it finds something.

    A line marked `# noqa` or `# noqa: CODE` is left out.
    """
    add = parser.add_argument
    add("paths", nargs="*", metavar="PATH", help="Notebooks, scripts and folders of them; - is a script on stdin.")
    add(
        "--select",
        action="append",
        default=[],
        metavar="CODES",
        help="Only these rules, or rules of these stages: host-sync,loading.",
    )
    add("--ignore", action="append", default=[], metavar="CODES", help="Not these rules or stages.")
    add("--notes", "--nits", action="store_true", help="Also show what is true and hardly matters.")
    add("--changed", action="store_true", help="Only files that differ from git's HEAD.")
    add(
        "--run",
        action="store_true",
        help="Run each notebook or script for some steps in a scratch copy, and confirm or refute what was found.",
    )
    add("--steps", type=_count, default=20, metavar="N", help="With --run: optimizer steps for each training cell (default 20).")
    add("--fix", action="store_true", help="Apply the mechanical fixes, and show what changed.")
    add("--diff", action="store_true", help="Show what --fix would change, and write nothing.")
    add("--format", choices=("text", "json", "sarif", "github"), help="Form of the report (default text).")
    add("--output", metavar="FILE", help="Write the report to this file, and a summary to stdout.")
    add("--statistics", action="store_true", help="How often each rule fired, instead of every finding.")
    add("--explain", metavar="CODE", help="Show the page of a rule, and nothing else.")
    add("--list-rules", action="store_true", help="Show all rules, and nothing else.")
    add("--out", metavar="WORKSPACE", help="Keep the findings there, for the page of `unchoke ui`.")
    parser.set_defaults(work=_lint)


def _notebook_options(parser: argparse.ArgumentParser) -> None:
    """A notebook cell by cell: what it does, its time and memory, what slows it down, and what to do about it.

    With --run it exits 1 if a cell failed, ran too long or ended the process. Ctrl-C keeps what was measured.
    """
    add = parser.add_argument
    add("file", metavar="FILE.ipynb", help="The notebook. It is never written.")
    add("--run", action="store_true", help="Run it in a fresh process and measure every cell.")
    add(
        "--steps",
        type=_count,
        metavar="N",
        help="With --run: stop each training cell after N optimizer steps, in a scratch copy.",
    )
    add("--timeout", type=_seconds, default=600.0, metavar="SECONDS", help="The longest a cell may run (default 600).")
    add("--keep-going", action="store_true", help="Go on after a cell that failed (default: stop there).")
    add("--cwd", metavar="FOLDER", help="Folder to run in (default: the notebook's own).")
    add("--kernel", metavar="NAME", help="Jupyter kernel whose interpreter runs it (default: the one it names).")
    add("--markdown", action="store_true", help="The table as Markdown.")
    add("--html", metavar="FILE", help="Write the table as one HTML file.")
    add("--out", metavar="WORKSPACE", help="Workspace folder (default unchoke-out).")
    parser.set_defaults(work=_notebook)


def _profile_options(parser: argparse.ArgumentParser) -> None:
    """Run a training script as it is, and show which lines each step's time goes to: `unchoke profile -- python train.py`."""
    parser.usage = f"{parser.prog} [OPTIONS] -- COMMAND"
    add = parser.add_argument
    add("--steps", type=_count, metavar="N", help="Stop after this many optimizer steps.")
    add("--seconds", type=_seconds, metavar="S", help="Stop after this many seconds of training.")
    add(
        "--replay",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="Run it once more on one batch, to measure a step without loading.",
    )
    add(
        "--try",
        action="store_true",
        dest="try_fixes",
        help="Try what the first findings suggest, in a sandbox, the script unedited.",
    )
    add("--save", metavar="FILE", help="Save the step times, for --against.")
    add("--against", metavar="FILE", help="Compare the steps with those saved there.")
    add("--fail-if-slower", type=_percent, metavar="P%", help="With --against: exit 1 if steps are slower by more than this.")
    add("--format", choices=("text", "json", "github"), help="Form of the report (default text).")
    add("--out", metavar="WORKSPACE", help="Workspace folder (default unchoke-out).")
    parser.set_defaults(work=_profile)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds of at least 0.1")
    return value


def _percent(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%?", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage such as 10%")
    return float(found[1])


def _refuse(what: str, why: str, try_: str) -> NoReturn:
    raise UsageError(what, code="options-conflict", why=why, try_=try_)


def _lint(typed: argparse.Namespace) -> Answer:
    from unchoke_doctor import lint, lint_report

    if typed.explain is not None:
        page = cause(typed.explain)
        return Answer(vars(page), page.page)
    if typed.list_rules:
        rules = [known for known in catalogue().values() if known.code in lint.CODES]
        return Answer({"rules": [vars(one) for one in rules]}, "\n".join(f"{one.code:<22}{one.title}" for one in rules))
    form = typed.format or ("json" if typed.json else "text")
    to_file = typed.output not in (None, STDIN)
    if typed.fix and typed.diff:
        _refuse("--fix and --diff at once", "one writes what the other only shows", "--diff first, then --fix")
    if typed.fix and STDIN in typed.paths:
        _refuse("--fix of stdin", "there is no file to write to", "--diff shows the fixes")
    if form in ("sarif", "github") and (typed.statistics or typed.diff):
        _refuse(f"--format {form} with --statistics or --diff", f"{form} holds findings and nothing else", "leave --format out")
    if typed.json and form != "json" and not to_file:
        _refuse(f"--json and --format {form} at once", "each of them goes to stdout", "give one of them, or --output FILE")
    if to_file:
        check_output(typed.output, "--output", typed.paths)
    stdin = sys.stdin.buffer.read() if STDIN in typed.paths else None
    result = lint.run_lint(
        typed.paths, select=_split(typed.select), ignore=_split(typed.ignore), notes=typed.notes, changed=typed.changed,
        fix=typed.fix, diff=typed.diff, stdin=stdin, run_steps=typed.steps if typed.run else None, say=_say,
    )  # fmt: skip
    if typed.out is not None:
        kept = lint.keep_findings(result, typed.paths, out=typed.out)
        _say(f"note   kept in {kept}: `unchoke ui --out {shlex.quote(typed.out)}` shows it under Speed")
    text = lint_report.render(result, "statistics" if typed.statistics and form == "text" else form)
    if to_file:
        write_text(Path(typed.output), text + "\n")
        text = f"{lint_report.render(result, 'summary')}\nwrote  {typed.output}"
    return Answer(result.to_dict(), text, result.exit_code, as_json=typed.json if to_file else form == "json")


def _split(values: Sequence[str]) -> list[str]:
    return [name.strip() for value in values for name in value.split(",") if name.strip()]


def _notebook(typed: argparse.Namespace) -> Answer:
    from unchoke_doctor.notebook import notebook

    if typed.markdown and typed.json:
        _refuse("--markdown and --json at once", "each of them goes to stdout", "give one of them")
    report = notebook(
        typed.file, run=typed.run, steps=typed.steps, timeout_s=typed.timeout, keep_going=typed.keep_going, cwd=typed.cwd,
        kernel=typed.kernel, html=typed.html, out=typed.out, say=_say,
    )  # fmt: skip
    return Answer(report.to_dict(), report.to_markdown() if typed.markdown else report.to_text(), report.exit_code)


def _profile(typed: argparse.Namespace) -> Answer:
    from unchoke_doctor.profile import profile

    as_json = typed.json or typed.format == "json"
    profiled = profile(
        typed.command, steps=typed.steps, seconds=typed.seconds, replay=typed.replay, try_fixes=typed.try_fixes, out=typed.out,
        save=typed.save, against=typed.against, fail_if_slower=typed.fail_if_slower, stdout_to_stderr=as_json, say=_say,
    )  # fmt: skip
    return Answer(
        profiled.to_dict(), profiled.to_github() if typed.format == "github" else profiled.to_text(), profiled.exit_code
    )


if __name__ == "__main__":
    sys.exit(main(prog="python -m unchoke_doctor"))
