"""Writes the settings into the functions of `import unchoke`: `python -m unchoke.cli.front_door`.

In: `unchoke/__init__.py`, whose functions are written by hand but for their settings, and the table in `core/settings.py`. Out:
the same file, in which every function that takes settings has each as a keyword with its type, and a line in the docstring. What
is written is committed, for readers and type checkers; a test writes it again and compares.
"""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import unchoke
from unchoke.core import atomic
from unchoke.core.settings import OPTIONS, TYPES, Group, help_of, options_of

_SAME_AS = {"detach": "fit"}
"""Functions that take the settings of another."""
_WIDTH = 130


def rewrite(text: str) -> str:
    """The module `text` with the settings of every function as the table has them."""
    lines = text.splitlines()
    for node in reversed(ast.parse(text).body):
        if isinstance(node, ast.FunctionDef) and settings_of(node.name):
            docstring = node.body[0]
            assert docstring.end_lineno is not None
            lines[node.lineno - 1 : docstring.end_lineno] = [*_signature(node), *_docstring(node)]
    return "\n".join(lines) + "\n"


def settings_of(function: str) -> tuple[str, ...]:
    """The settings that are keywords of a function: DATA comes first in it, by hand."""
    return tuple(name for name in options_of(_SAME_AS.get(function, function)) if name != "data")


def _signature(node: ast.FunctionDef) -> list[str]:
    own = node.args
    defaults = [None] * (len(own.args) - len(own.defaults)) + own.defaults
    written = [_parameter(one, default) for one, default in zip(own.args, defaults, strict=True)]
    taken = settings_of(node.name)
    by_hand = [pair for pair in zip(own.kwonlyargs, own.kw_defaults, strict=True) if pair[0].arg not in taken]
    written += ["*", *(_parameter(*pair) for pair in by_hand)]
    written += [f"{name}: {keyword_type(name)} = {'()' if _is_several(name) else 'None'}" for name in taken]
    assert node.returns is not None
    return [f"def {node.name}(", *(f"    {one}," for one in written), f") -> {ast.unparse(node.returns)}:"]


def _parameter(parameter: ast.arg, default: ast.expr | None) -> str:
    assert parameter.annotation is not None
    annotation = ast.unparse(parameter.annotation).replace("'", '"')
    return f"{parameter.arg}: {annotation}" + ("" if default is None else f" = {ast.unparse(default)}".replace("'", '"'))


def keyword_type(name: str) -> str:
    """The type of a setting's keyword, as it is written. None stands for what was not given."""
    hint, path = TYPES[name].__origin__, OPTIONS[name].path
    if _is_several(name):
        return _written(hint, path=path)
    kinds = [kind for kind in _members(hint) if kind is not NoneType]
    return " | ".join([*(_written(kind, path=path) for kind in kinds), "None"])


def _is_several(name: str) -> bool:
    hint = TYPES[name].__origin__
    return get_origin(hint) is dict or (get_origin(hint) is tuple and get_args(hint)[-1] is Ellipsis)


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _written(kind: Any, *, path: bool = False) -> str:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _written(arguments[0], path=path)
    if origin is Literal:
        return "Literal[{}]".format(", ".join(f'"{word}"' for word in arguments))
    if origin is tuple and arguments[-1] is Ellipsis:
        text = " | str" if arguments[0] is int else ""
        return f"Sequence[{_written(arguments[0], path=path)}]{text}"
    if origin is tuple:
        return f"tuple[{', '.join(map(_written, arguments))}]"
    if origin is dict:
        return f"Mapping[str, {_written(arguments[1])}] | Sequence[str]"
    return "str | Path" if path else str(kind.__name__)


def _docstring(node: ast.FunctionDef) -> list[str]:
    """The docstring with its lines about settings between those about other parameters and what is returned."""
    written = (ast.get_docstring(node) or "").split("\n\n")
    headings = tuple(f"{group}:\n" for group in get_args(Group))
    parts = [part for part in written if not part.startswith(headings)]
    place = next(number for number, part in enumerate(parts) if part.startswith("Returns:"))
    parts[place:place] = list(_sections(node.name))
    inside = textwrap.indent('"""' + "\n\n".join(parts) + '\n"""', "    ")
    return inside.splitlines()


def _sections(function: str) -> list[str]:
    sections = []
    for group in get_args(Group):
        names = [name for name in settings_of(function) if OPTIONS[name].group == group]
        lines = [f"{name}: {in_python(help_of(name, function))}" for name in names]
        wrapped = [
            textwrap.fill(line, _WIDTH - 4, initial_indent="    ", subsequent_indent="        ", break_on_hyphens=False)
            for line in lines
        ]
        sections += ["\n".join([f"{group}:", *wrapped])] if names else []
    return sections


def in_python(text: str) -> str:
    """A help text in the words of Python: several values are a list."""
    for typed, called in _CALLED.items():
        text = text.replace(typed, called)
    return text


_CALLED = {
    "; repeat it for several folders.": "; one or several.",
    "; repeat it for several.": "; one or several.",
    ", or repeat it.": ".",
    "--fold says": "`fold` says",
    "with --cut none": 'with `cut="none"`',
    "`unchoke presets list`": "`list_presets`",
    "`unchoke doctor`'s rules": "the rules of `doctor`",
}


def main() -> None:
    file = Path(unchoke.__file__)
    atomic.write_text(file, rewrite(file.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
