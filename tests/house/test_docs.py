"""What the documents name exists: files, functions, commands and their options, links."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from make_reference import build_pages, build_stub

import unchoke
from unchoke.cli.commands import DoctorCommand
from unchoke.cli.main import app, join_expect, name_script
from unchoke.cli.misuse import PARSER_ERROR
from unchoke.core.errors import UsageError
from unchoke.core.settings import OPTIONS, flag
from unchoke_doctor.__main__ import build_parser, parse_words

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "unchoke"
DOCTOR = ROOT / "src" / "unchoke_doctor"
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
MANUAL = [
    file for file in sorted((ROOT / "docs").rglob("*.md")) if file.parent.name not in ("notebooks", "lint")
]  # those are made by the build
DOCUMENTS = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md", *MANUAL]
PLACE = re.compile(r"(?P<file>[\w/]+\.py)(?::(?P<name>[A-Za-z_][\w.]*)(?:\(\))?)?")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
BENCH = re.compile(r"(benches/\w+\.py) (.*)")


def each(documents: list[Path]) -> Callable[[Callable[[Path], Collection[str]]], Callable[[], None]]:
    """One test over all documents. The check returns what is wrong in one of them; the test shows all of it."""

    def wrap(check: Callable[[Path], Collection[str]]) -> Callable[[], None]:
        def test() -> None:
            wrong = {str(document.relative_to(ROOT)): found for document in documents if (found := check(document))}
            assert not wrong

        return test

    return wrap


def inline_code(text: str) -> list[str]:
    """What stands between single backticks, fenced blocks left out."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


@cache
def definitions(file: Path) -> set[str]:
    """The names a module defines: functions, classes, methods as `Class.method`, and constants."""
    names: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
        if isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


@cache
def everything_defined() -> set[str]:
    found = set().union(*(definitions(file) for file in (*SRC.rglob("*.py"), *DOCTOR.rglob("*.py"))))
    return found | {name.partition(".")[2] for name in found if "." in name}


def place_of(name: str) -> Path | None:
    """A file named in a document: below the package, or below the repository."""
    return next((base / name for base in (SRC, ROOT / "src", ROOT) if (base / name).is_file()), None)


@each(DOCUMENTS)
def test_named_places_exist(document: Path) -> Collection[str]:
    wrong = []
    for code in inline_code(document.read_text(encoding="utf-8")):
        match = PLACE.fullmatch(code)
        if match is None:
            continue
        file = place_of(match["file"])
        if file is None or (match["name"] and match["name"] not in definitions(file)):
            wrong.append(code)
    return wrong


@each(DOCUMENTS)
def test_named_functions_exist(document: Path) -> Collection[str]:
    named = [code for code in inline_code(document.read_text(encoding="utf-8")) if re.fullmatch(r"[a-z_.A-Z]+\(\)", code)]
    classes = [code for code in inline_code(document.read_text(encoding="utf-8")) if re.fullmatch(r"(?:[A-Z][a-z]+)+", code)]
    known = everything_defined()
    foreign = {"Apache", "ImageFolder", "DataLoader"}
    return [code for code in named + classes if code.removesuffix("()") not in known | foreign]


def test_architecture_walk_names_real_functions() -> None:
    places = [code for code in inline_code(ARCHITECTURE) if ":" in code and PLACE.fullmatch(code)]
    assert len(places) >= 20
    for step in (
        "cli/main.py:main()",
        "training/fit.py:fit()",
        "jobs/run_jobs.py:run_jobs()",
        "training/build_record.py:enter_run()",
    ):
        assert step in places


def test_the_architecture_names_every_package() -> None:
    packages = {folder.parent.name for folder in SRC.glob("*/__init__.py")}
    assert packages <= set(re.findall(r"(\w+)/\s", ARCHITECTURE))


@each(DOCUMENTS)
def test_every_link_to_a_file_leads_somewhere(document: Path) -> Collection[str]:
    links = re.findall(r"\]\(([^)#]+)\)", document.read_text(encoding="utf-8"))
    made = re.compile(r"(?:\.\./)*(?:docs/)?(?:lint|notebooks)/[\w-]+\.md")  # by the build
    return [link for link in links if "://" not in link and not made.fullmatch(link) and not (document.parent / link).exists()]


def command_lines(text: str) -> list[str]:
    """The `unchoke …` lines of code blocks, and those in backticks, comments left out."""
    blocks = re.findall(r"^```.*?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line.strip().removeprefix("$ ") for block in blocks for line in block.replace("\\\n", "").splitlines()]
    lines += [line.strip() for line in text.splitlines() if line.startswith("    ")]
    return [line.split(" # ")[0].strip() for line in [*lines, *inline_code(text)] if re.match(r"unchoke [a-z-]", line)]


EVERYTHING: Any = typer.main.get_command(app)


def resolve(words: list[str]) -> Any:
    """The command that `unchoke words…` would run; None if there is none."""
    command: Any = EVERYTHING
    for word in words:
        if not hasattr(command, "commands"):
            break
        command = command.commands.get(word) if not word.startswith("-") else command
    return command


def doctor_name(command: Any) -> str:
    """The name of a command that `unchoke_doctor` parses; empty for the others."""
    return {"script": "profile"}.get(command.name, command.name) if isinstance(command, DoctorCommand) else ""


def options_of(command: Any) -> set[str]:
    if name := doctor_name(command):
        actions = build_parser().commands[name]._actions  # type: ignore[attr-defined]
        return {option for action in actions for option in action.option_strings} | {"--no-replay"}
    return {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)} | {
        "--help",
        "--help-all",
    }


def all_commands(command: Any, prefix: str) -> dict[str, Any]:
    if not hasattr(command, "commands"):
        return {prefix: command}
    return {
        name: found for word, inner in command.commands.items() for name, found in all_commands(inner, f"{prefix} {word}").items()
    }


COMMANDS = all_commands(EVERYTHING, "unchoke")


@each(DOCUMENTS)
def test_command_lines_use_existing_options(document: Path) -> Collection[str]:
    wrong = []
    for line in command_lines(document.read_text(encoding="utf-8")):
        ours = line.partition(" -- ")[0]  # what follows is somebody else's command
        command = resolve(name_script(shlex.split(line)[1:]))
        if command is None or set(OPTION.findall(ours)) - options_of(command):
            wrong.append(line)
    return wrong


@each([ROOT / "README.md", *MANUAL])
def test_manual_commands_parse(document: Path) -> Collection[str]:
    """By the very parser: arguments are there, options have values of their kind."""
    text = document.read_text(encoding="utf-8")
    wrong = []
    for line in set(command_lines(text)) - set(inline_code(text)):
        words = join_expect(name_script(shlex.split(line.partition(" < ")[0])[1:]))
        if {"[OPTIONS]", "…"} & set(words):
            continue
        command = EVERYTHING
        while hasattr(command, "commands") and words and words[0] in command.commands:
            command = command.commands[words.pop(0)]
        try:
            if name := doctor_name(command):
                parse_words([name, *words], "unchoke")
            else:
                command.make_context("unchoke", words)
        except (PARSER_ERROR, UsageError) as error:
            wrong.append(f"{line}: {error}")
    return wrong


@each(DOCUMENTS)
def test_named_options_exist(document: Path) -> Collection[str]:
    known = set().union(*(options_of(command) for command in COMMANDS.values())) | options_of(EVERYTHING)
    codes = [code for code in inline_code(document.read_text(encoding="utf-8")) if not BENCH.match(code)]
    return {option for code in codes for option in OPTION.findall(code)} - known


@each(DOCUMENTS)
def test_bench_options_exist(document: Path) -> Collection[str]:
    matches = [match for code in inline_code(document.read_text(encoding="utf-8")) if (match := BENCH.match(code))]
    asked = [(ROOT / match[1], option) for match in matches for option in OPTION.findall(match[2])]
    return [option for script, option in asked if f'"{option}"' not in script.read_text(encoding="utf-8")]


def test_the_readme_is_read_in_three_minutes() -> None:
    """At 200 words a minute, tables included."""
    prose = [line for line in README.splitlines() if not line.startswith("    ")]
    words = re.sub(r"\]\([^)]*\)", "]", " ".join(prose)).split()
    assert len(words) <= 600


def test_generated_pages_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    """If it fails: `python docs/make_reference.py` in the root of the repository writes them again."""
    monkeypatch.chdir(ROOT)
    made = {f"docs/{name}": text for name, text in build_pages().items()} | {"src/unchoke/__init__.pyi": build_stub()}
    assert not [name for name, text in made.items() if (ROOT / name).read_text(encoding="utf-8") != text]


def test_reference_is_complete() -> None:
    pages = {
        name: (ROOT / "docs" / "reference" / f"{name}.md").read_text(encoding="utf-8")
        for name in ("commands", "python", "settings")
    }
    headings = {name: set(re.findall(r"^##+ `?(.+?)`?$", text, re.MULTILINE)) for name, text in pages.items()}
    assert set(COMMANDS) <= headings["commands"]
    assert {f"unchoke.{name}" for name in unchoke.__all__ if name.islower() and name != "errors"} <= headings["python"]
    assert {flag(name) for name in OPTIONS if name != "data"} <= headings["settings"]


def test_every_exit_code_is_explained() -> None:
    from unchoke.cli import showing
    from unchoke.core import errors

    kinds = [errors.UsageError, errors.DataError, errors.MachineError, errors.Interrupted]
    codes = {0, showing.OUR_BUG, *(kind.exit_code for kind in kinds)}
    page = (ROOT / "docs" / "reference" / "output.md").read_text(encoding="utf-8")
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)} == codes


def test_every_page_can_be_found() -> None:
    """In the navigation, or in a list that is made of its folder."""
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    pages = {file.relative_to(ROOT / "docs").as_posix() for file in MANUAL}
    assert not {page for page in pages - listed if page.split("/")[0] != "decisions"}
