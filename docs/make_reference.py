"""What is generated from the source and committed: `python docs/make_reference.py`, in the root of the repository.

In: the commands as they are declared, the table of settings, the functions of `import unchoke`, the typed record, the titles of
the decision notes. Out: `docs/reference/commands.md`, `settings.md`, `python.md`, `record.md` and `errors.md`,
`docs/decisions/index.md`, and `src/unchoke/__init__.pyi`, which editors and type checkers read. A test makes them again and
compares.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import typer

import unchoke
import unchoke_doctor
from unchoke.cli.commands import DoctorCommand
from unchoke.cli.help_page import placeholder, typed_form
from unchoke.cli.main import app
from unchoke.core import atomic, errors, listing, record
from unchoke.core.keywords import keyword_type, settings_of
from unchoke.core.settings import OPTIONS, Group, flag, help_of
from unchoke_doctor.__main__ import build_parser

DOCS = Path("docs")
STUB = Path("src/unchoke/__init__.pyi")
_SETTINGS = {flag(name): name for name in OPTIONS}
_ERRORS = ("DataError", "Interrupted", "MachineError", "UnchokeError", "UsageError")
_SHARED = {"--json", "--help", "--help-all", "-h"}
_ABOUT_COMMANDS = """\
# Commands

Made from the commands themselves by `python docs/make_reference.py`. `--help` after any command lists the options that
are used most, `--help-all` every one; `--json` gives the result as one JSON object per line ([output](output.md)). RUN is
`exp_3`, `3`, `latest`, `best`, or a folder made by `runs export`. What several commands take is a [setting](settings.md),
described once.
"""
_ABOUT_SETTINGS = """\
# Settings

Made from the table of settings by `python docs/make_reference.py`. A setting is an option of several commands, a keyword
of their functions in Python, and a line of `unchoke.toml` or of a preset. What is typed wins over a preset, a preset over what
the workspace remembers, and that over the default. Where no default stands, the value is chosen when it is needed, and the choice
is shown with its reason.
"""
_ABOUT_PYTHON = """\
# Python

Made from the functions of `import unchoke` by `python docs/make_reference.py`. Every command is a function; its options
are keywords with underscores. `help(unchoke.fit)` shows the same, every [setting](settings.md) included.
"""
_ABOUT_RECORD = """\
# record.json

Made from the typed record by `python docs/make_reference.py`: `experiments/exp_N/record.json`, what
`unchoke runs show --json` answers and what `unchoke.show_run` returns. Whatever does not concern a kind of run is absent or
empty; readers should pass over names they do not know.
"""
_ABOUT_ERRORS = """\
# Errors

Made from the source by `python docs/make_reference.py`. Every error has a code: it stands in brackets behind the first
line and as `error.code` in [JSON](output.md) and Python. Codes stay the same when the words improve, so programs should match
them; … stands for a value.

| code | exit | what it says |
|---|---|---|
"""
_ABOUT_DECISIONS = """\
# Decisions

Choices that would puzzle a newcomer, one page each: what was chosen, why, and what else was tried.
"""


def build_pages() -> dict[str, str]:
    """File name below `docs/` to text."""
    return {
        "reference/commands.md": "\n".join([_ABOUT_COMMANDS, *_commands()]),
        "reference/settings.md": "\n".join([_ABOUT_SETTINGS, *_settings()]),
        "reference/python.md": "\n".join([_ABOUT_PYTHON, *_functions()]),
        "reference/record.md": "\n".join([_ABOUT_RECORD, *_record()]),
        "reference/errors.md": _ABOUT_ERRORS + "\n".join(_errors()) + "\n",
        "decisions/index.md": "\n".join([_ABOUT_DECISIONS, *_decisions()]) + "\n",
    }


_STUB_HEAD = '''\
"""What editors and type checkers know of `import unchoke`; made by `python docs/make_reference.py`.

`help(unchoke.fit)` says what each keyword means.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

'''


def build_stub() -> str:
    """Functions with settings have them in their signatures; every other name is imported from where it is defined."""
    homes = {"unchoke.core": "errors", "unchoke.core.errors": " ".join(_ERRORS), **vars(unchoke)["_HOMES"]}
    written = [name for name in sorted(unchoke.__all__) if settings_of(name)]
    names = [(module, name) for module, names in homes.items() for name in names.split() if name not in written]
    lines = [f"from {module} import {name} as {name}" for module, name in names] + ["from unchoke.core.events import OnEvent"]
    lines = [
        *sorted(lines),
        "",
        "__version__: str",
        "__all__: list[str]",
        "",
        "def load_ipython_extension(shell: Any) -> None: ...",
    ]
    for name in written:
        function = getattr(unchoke, name)
        signature = inspect.signature(function)
        about = inspect.cleandoc(function.__doc__).split("\n\n")[0]
        parameters = [f"    {one}," for one in _parameters(signature)]
        lines += [f"def {name}(", *parameters, f") -> {signature.return_annotation}:", f'    """{about}"""', ""]
    return _STUB_HEAD + "\n".join(lines)


def _parameters(signature: inspect.Signature, without: Collection[str] = ()) -> Iterator[str]:
    """Parameters as they are written in source."""
    starred = False
    for one in signature.parameters.values():
        if one.name not in without:
            if one.kind == one.KEYWORD_ONLY and not starred:
                starred = True
                yield "*"
            default = "" if one.default is one.empty else f" = {one.default!r}"
            yield f"{one.name}: {one.annotation}{default}".replace("'", '"')


def _errors() -> Iterator[str]:
    """A row for each code: every error the source raises under it."""
    found: dict[str, tuple[set[int], list[str]]] = {}
    packages = [Path(package.__file__).parent for package in (unchoke, unchoke_doctor) if package.__file__]
    sources = [Path(entry.path) for package in packages for entry in listing.walk(package) if entry.path.endswith(".py")]
    nodes = [node for file in sorted(sources) for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
    base_of = {node.name: ast.unparse(node.bases[0]) for node in nodes if isinstance(node, ast.ClassDef) and node.bases}
    for node in nodes:
        code = next((one.value for one in getattr(node, "keywords", ()) if one.arg == "code"), None)
        kind = getattr(getattr(node, "func", None), "id", "")
        error = getattr(errors, kind, None) or getattr(errors, base_of.get(kind, ""), None)
        if isinstance(node, ast.Call) and isinstance(code, ast.Constant) and error is not None:
            exits, says = found.setdefault(str(code.value), (set(), []))
            exits.add(error.exit_code)
            if (text := _template(node.args[0])) not in says:
                says.append(text)
    for code, (exits, says) in sorted(found.items()):
        yield f"| `{code}` | {', '.join(map(str, sorted(exits)))} | {'<br>'.join(says)} |"


def _template(what: ast.expr) -> str:
    """A message with … where it puts in a value."""
    if isinstance(what, ast.JoinedStr):
        parts = (str(part.value) if isinstance(part, ast.Constant) else "…" for part in what.values)
        return "".join(parts).split("\n")[0].replace("|", "\\|")
    if isinstance(what, ast.BinOp):
        return _template(what.left)
    return str(what.value).replace("|", "\\|") if isinstance(what, ast.Constant) else "…"


def _commands() -> Iterator[str]:
    """A table of all commands under their headings, then a section for each."""
    outer: Any = typer.main.get_command(app)
    headed: dict[str, list[tuple[str, Any]]] = {}
    for name, command in outer.commands.items():
        headed.setdefault(command.rich_help_panel, []).extend(_leaves(command, f"unchoke {name}"))
    for heading, members in headed.items():
        yield f"**{heading}**\n"
        yield from _table(("command", "what it does"), [(f"[`{name}`](#{_anchor(name)})", _brief(one)) for name, one in members])
    for members in headed.values():
        for name, command in members:
            yield from _command(name, command)


def _leaves(command: Any, name: str) -> list[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        return [(name, command)]
    return [leaf for word, one in command.commands.items() for leaf in _leaves(one, f"{name} {word}")]


def _brief(command: Any) -> str:
    return str(command.short_help or command.help).split("\n\n")[0]


def _doctor_command(name: str) -> Iterator[str]:
    """A command of the doctor, which declares its options itself."""
    parser: Any = build_parser()
    one = parser.commands[name.split()[1]]
    usage = (
        "unchoke profile --steps 200 -- python train.py"
        if name.startswith("unchoke profile")
        else f"{name} {_metavars(one)}[OPTIONS]"
    )
    yield f"## {name}\n"
    yield f"    {usage}\n"
    yield f"{' '.join(one.description.split())}\n"
    shown = [
        action
        for action in one._actions
        if action.help and "SUPPRESS" not in action.help and "--json" not in action.option_strings
    ]
    rows = [(f"`{_typed(action)}`", action.help) for action in shown if "-h" not in action.option_strings]
    yield from _table(("", ""), rows)


def _metavars(parser: Any) -> str:
    return "".join(f"{action.metavar} " for action in parser._actions if not action.option_strings)


def _typed(action: Any) -> str:
    value = action.metavar or ("|".join(action.choices) if action.choices else "")
    takes_value = action.nargs != 0 and value
    return " ".join([", ".join(action.option_strings), *([value] if takes_value else [])]).strip()


def _command(name: str, command: Any) -> Iterator[str]:
    if isinstance(command, DoctorCommand):
        yield from _doctor_command(name)
        return
    params = [one for one in command.params if not getattr(one, "hidden", False) and not _SHARED & {*one.opts}]
    arguments = [one for one in params if one.param_type_name == "argument"]
    own = [one for one in params if one.param_type_name == "option" and one.opts[0] not in _SETTINGS]
    taken = [_SETTINGS[one.opts[0]] for one in params if one.opts[0] in _SETTINGS]
    yield f"## {name}\n"
    yield f"    {' '.join([name, *map(placeholder, arguments), '[OPTIONS]'])}\n"
    yield f"{' '.join(str(command.help).split())}\n"
    rows = [(f"`{placeholder(one).strip('[].')}`", str(one.help or "")) for one in arguments]
    yield from _table(("", ""), rows + [(f"`{typed_form(one)}`", str(one.help or "")) for one in own])
    for group in get_args(Group):
        if links := [_link(one, flag(one)) for one in taken if OPTIONS[one].group == group]:
            yield f"{group}: {', '.join(links)}.\n"


def _link(setting: str, called: str) -> str:
    return f"[`{called}`](settings.md#{_anchor(flag(setting))})"


def _settings() -> Iterator[str]:
    for group in get_args(Group):
        yield f"## {group}\n"
        for name in [name for name, option in OPTIONS.items() if option.group == group and name != "data"]:
            commands = [command.replace("_", " ") for command in OPTIONS[name].commands]
            yield f"### `{flag(name)}`\n"
            yield f"{_escape(help_of(name, OPTIONS[name].commands[0]))}\n"
            kept = "remembered by the workspace" if OPTIONS[name].remembered else "not remembered"
            yield f"`{name}: {keyword_type(name)}` · {', '.join(commands)} · {kept}\n"


def _functions() -> Iterator[str]:
    for name in sorted(one for one in unchoke.__all__ if one.islower() and callable(getattr(unchoke, one))):
        function = getattr(unchoke, name)
        taken, signature = settings_of(name), inspect.signature(function)
        shown = f"{name}({', '.join(_parameters(signature, taken))}) -> {signature.return_annotation}"
        about, given = _docstring_parts(inspect.cleandoc(function.__doc__))
        yield f"## unchoke.{name}\n"
        yield f"```python\n{shown}\n```\n"
        yield about + "\n"
        yield from _table(("argument", "meaning"), _arguments(given.get("Args", "")))
        if taken:
            yield f"Settings: {', '.join(_link(one, one) for one in taken)}.\n"
        yield f"Returns: {' '.join(given['Returns'].split())}\n"
        if "Example" in given:
            yield f"```pycon\n{inspect.cleandoc(given['Example'])}\n```\n"


def _docstring_parts(text: str) -> tuple[str, dict[str, str]]:
    """What a function is for, and what stands under each heading of its docstring."""
    headings = ("Args", "Returns", "Example", *get_args(Group))
    parts = [(part.partition(":\n")[0], part) for part in text.split("\n\n")]
    about = "\n\n".join(part for heading, part in parts if heading not in headings)
    return about, {heading: part.partition("\n")[2] for heading, part in parts if heading in headings}


def _arguments(text: str) -> list[tuple[str, str]]:
    joined = re.sub(r"\n {5,}", " ", inspect.cleandoc("\n" + text))
    pairs = (line.partition(": ") for line in joined.splitlines())
    return [(f"`{name}`", about) for name, _, about in pairs]


def _record() -> Iterator[str]:
    """The classes of a record that hold something, with what is written beside their fields; the whole record first."""
    classes = [node for node in ast.parse(inspect.getsource(record)).body if isinstance(node, ast.ClassDef)]
    parts = [node for node in classes if issubclass(getattr(record, node.name), record.RecordPart)]
    for node in sorted(parts, key=lambda node: node.name != "RunRecord"):
        if rows := list(_fields(node)):
            yield f"## {node.name}\n"
            yield f"{ast.get_docstring(node) or ''}\n".lstrip("\n")
            yield from _table(("name", "type", "meaning"), rows)


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, ...]]:
    for field, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign):
            said = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            kind = ast.unparse(field.annotation).replace("Named[", "dict[str, ")
            yield f"`{ast.unparse(field.target)}`", f"`{kind}`", str(after.value.value) if said else ""  # type: ignore[union-attr]


def _decisions() -> Iterator[str]:
    folder = DOCS / "decisions"
    for name in listing.names(folder, suffix=".md"):
        if name != "index.md":
            title = (folder / name).read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
            yield f"- [{title}]({name})"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    if rows:
        lines = [head, ("---",) * len(head), *(tuple(_escape(cell) for cell in row) for row in rows)]
        yield "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _escape(text: str) -> str:
    """One line, and safe in a table."""
    return " ".join(text.split()).replace("|", "\\|")


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def main() -> None:
    atomic.write_text(STUB, build_stub())
    for name, text in build_pages().items():
        file = DOCS / name
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            atomic.write_text(file, text)


if __name__ == "__main__":
    main()
