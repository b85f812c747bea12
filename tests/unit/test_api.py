"""The functions of `import unchoke`: one for each command, typed, documented, and with the options of the command."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

import unchoke
from unchoke.core.keywords import keyword_type, settings_of
from unchoke.core.settings import OPTIONS

FILE = Path(unchoke.__file__)
COMMANDS = [
    *("budget", "check", "curate", "demo", "doctor", "encoders", "evaluate", "export", "extract", "fit", "lint"),
    *("notebook", "predict", "report", "tile", "train", "tune", "ui"),
]
OF_TWO_WORDS = {
    "cluster check": "cluster_check",
    "presets list": "list_presets",
    "presets show": "show_preset",
    "profile script": "profile",
    "profile tile": "profile_tile",
    "profile train": "profile_train",
    "profile view": "profile_view",
    "runs best": "best_run",
    "runs compare": "compare_runs",
    "runs export": "export_run",
    "runs list": "list_runs",
    "runs show": "show_run",
    "runs watch": "watch_run",
    "segment predict": "segment_predict",
    "segment train": "segment_train",
}
FUNCTIONS = sorted([*COMMANDS, *OF_TWO_WORDS.values(), "detach", "list_encoders", "load_model"])
CALLED = {"file": "path", "timeout": "timeout_s"}
"""Options of the command line whose keyword has another name."""
SHOWN = {
    *("json", "quiet", "verbose", "detach", "only_list", "markdown", "fix", "diff", "form", "output", "statistics", "explain"),
    "list_rules",
}
"""Options about what is printed, or that are functions of their own."""

CLASSES = {name for name in unchoke.__all__ if not name.islower()}
ERRORS = {"DataError", "Interrupted", "MachineError", "UnchokeError", "UsageError"}


def in_a_fresh_interpreter(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def function(name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(unchoke, name)
    return found


def test_there_is_a_function_for_every_command() -> None:
    from unchoke.cli.main import app

    group: Any = typer.main.get_command(app)
    one_word = {name for name, command in group.commands.items() if not hasattr(command, "commands")}
    two_words = {f"{name} {word}" for name, of in group.commands.items() for word in getattr(of, "commands", {})}
    assert one_word == set(COMMANDS)
    assert two_words == set(OF_TWO_WORDS)
    assert set(FUNCTIONS) == {name for name in unchoke.__all__ if name.islower()} - {"errors"}
    assert set(unchoke.__all__) <= set(dir(unchoke))


def test_every_function_documents_its_keywords_and_result() -> None:
    lacking: list[str] = []
    for name in FUNCTIONS:
        told, parameters = inspect.getdoc(function(name)) or "", inspect.signature(function(name)).parameters
        if not (told.split("\n")[0].endswith((".", ":", "?")) or told.split("\n\n")[0].endswith(".")):
            lacking.append(f"{name}: a first sentence")
        lacking += [f"{name}: keyword {one}" for one in parameters if f"\n    {one}: " not in told]
        parts = ("\nReturns:\n", "\nExample:\n    >>> ", f"unchoke.{name}(")
        lacking += [f"{name}: {part.strip()}" for part in parts if part not in told]
    assert lacking == []


def test_every_option_of_a_command_is_a_keyword() -> None:
    from unchoke.cli.main import app

    commands: Any = typer.main.get_command(app)
    wrong: list[str] = []
    for command in [*COMMANDS, *OF_TWO_WORDS]:
        found = commands
        for word in command.split():
            found = found.commands[word]
        parameters = inspect.signature(function(OF_TWO_WORDS.get(command, command))).parameters
        for option in found.params:
            name = CALLED.get(option.name, option.name)
            if option.name in SHOWN:
                continue
            if name not in parameters:
                wrong.append(f"{command} {option.name} is no keyword")
                continue
            default = parameters[name].default
            given = option.default.value if hasattr(option.default, "value") else option.default
            if default != (given or default if default in ((), inspect.Parameter.empty) else given):
                wrong.append(f"{command} {option.name}: default {given}, of the function {default}")
    assert wrong == []


def test_what_is_not_given_has_a_default_that_says_so() -> None:
    for name in FUNCTIONS:
        parameters = inspect.signature(function(name)).parameters
        assert {parameters[setting].default for setting in settings_of(name)} <= {None, ()}
        assert {parameters[setting].kind for setting in settings_of(name)} <= {inspect.Parameter.KEYWORD_ONLY}


def test_keywords_are_typed_as_people_give_them() -> None:
    written = {
        "images": "str | Path | Sequence[str | Path]",
        "strides": "Sequence[int] | str",
        "long": "tuple[str, str] | None",
        "fold": 'int | Literal["all"] | None',
        "sums": "Mapping[str, Sequence[str]] | Sequence[str]",
        "grad_ckpt": "bool | None",
        "weights": "str | Path | None",
        "normalise": "str | None",
    }
    assert {name: keyword_type(name) for name in written} == written


def test_every_setting_is_a_keyword_somewhere() -> None:
    assert {setting for name in FUNCTIONS for setting in settings_of(name)} == set(OPTIONS) - {"data"}


def test_results_and_errors_are_lazy() -> None:
    in_a_fresh_interpreter(
        "import sys, unchoke\n"
        "loaded = {name for name in sys.modules if name.startswith('unchoke.')}\n"
        "assert loaded == {'unchoke.core', 'unchoke.core.errors', 'unchoke.errors'}, loaded\n"
        "assert not {'unchoke_doctor.lint', 'unchoke_doctor.profile'} & set(sys.modules)\n"
        "import unchoke.errors\nfrom unchoke.errors import DataError\nfrom unchoke import errors\n"
        "assert unchoke.DataError is errors.DataError is DataError and issubclass(unchoke.UsageError, unchoke.UnchokeError)\n"
        "assert unchoke.Preset is type(unchoke.list_presets()[0])"
    )


def test_every_class_has_a_docstring() -> None:
    told = {name: getattr(unchoke, name).__doc__ or "" for name in CLASSES}
    assert [name for name, text in told.items() if not text or text.startswith(f"{name}(")] == []


def test_import_loads_only_the_standard_library() -> None:
    in_a_fresh_interpreter(
        "import sys\nbefore = set(sys.modules)\nimport unchoke\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before} - {'unchoke', 'unchoke_doctor'}\n"
        "assert new <= set(sys.stdlib_module_names), new"
    )


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="fitt"):
        unchoke.fitt  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(("keyword", "says"), [("epoch", "Did you mean 'epochs'"), ("zzz", "help(unchoke.fit)")])
def test_misspelt_keyword_is_a_type_error(keyword: str, says: str) -> None:
    with pytest.raises(TypeError, match=re.escape(f"fit() got an unexpected keyword argument {keyword!r}")) as raised:
        unchoke.fit("nowhere", **{keyword: 3})  # type: ignore[arg-type]
    assert says in str(raised.value)


def test_no_package_has_the_name_of_a_command() -> None:
    packages = {folder.parent.name for folder in FILE.parent.glob("*/__init__.py")}
    assert not packages & set(FUNCTIONS)


def test_every_attribute_of_a_result_is_documented() -> None:
    lacking: list[str] = []
    for name in sorted(CLASSES - ERRORS - {"RunRecord", "StoredRun"}):  # as in record.json and the database
        found = getattr(unchoke, name)
        tree = ast.parse(inspect.getsource(found)).body[0]
        assert isinstance(tree, ast.ClassDef)
        following = [*tree.body[1:], None]
        told = [isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) for one in following]
        fields = [(node, ok) for node, ok in zip(tree.body, told, strict=True) if isinstance(node, ast.AnnAssign)]
        lacking += [f"{name}: {ast.unparse(node)}" for node, ok in fields if not ok]
        given = [value for value in vars(found).values() if isinstance(value, property) and value.fget is not None]
        lacking += [f"{name}: {one.fget.__name__}" for one in given if not (one.__doc__ or one.fget.__name__.startswith("_"))]
    assert lacking == []
