"""Settings as keywords of the functions of `import unchoke`: their types, their help, and the error for a misspelt one.

In: a function that takes its settings as `**options`, and the table in `core/settings.py`. Out: the same function with each
setting in its signature and its docstring, as `help()` and editors show them.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from unchoke.core.settings import OPTIONS, TYPES, Group, help_of, options_of

_WIDTH = 126
_CALLED = {
    "; repeat it for several folders.": "; one or several.",
    "; repeat it for several.": "; one or several.",
    ", or repeat it.": ".",
    "--fold says": "`fold` says",
    "with --cut none": 'with `cut="none"`',
    "`unchoke presets list`": "`list_presets`",
    "`unchoke doctor`'s rules": "the rules of `doctor`",
}
"""Words of help texts about the command line, and what they are in Python."""


def settings_of(function: str) -> tuple[str, ...]:
    """The settings that are keywords of a function; DATA is its first argument."""
    return tuple(name for name in options_of("fit" if function == "detach" else function) if name != "data")


def with_settings(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as people call it: its settings are keywords with type and help, and a misspelt one is a TypeError."""
    name = function.__name__
    taken = settings_of(name)
    if not taken:
        return function
    own = inspect.signature(function)
    by_hand = [one for one in own.parameters.values() if one.kind != Parameter.VAR_KEYWORD and one.name not in taken]
    settings = [
        Parameter(one, Parameter.KEYWORD_ONLY, default=() if _is_several(one) else None, annotation=keyword_type(one))
        for one in taken
    ]
    signature = own.replace(parameters=[*by_hand, *settings])

    @wraps(function)
    def called(*arguments: Any, **keywords: Any) -> Any:
        for unknown in keywords.keys() - signature.parameters.keys():
            near = get_close_matches(unknown, signature.parameters, n=1)
            hint = f". Did you mean {near[0]!r}?" if near else f"; help(unchoke.{name}) lists those it takes"
            raise TypeError(f"{name}() got an unexpected keyword argument {unknown!r}{hint}")
        return function(*arguments, **keywords)

    parts = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    place = next(number for number, part in enumerate(parts) if part.startswith("Returns:"))
    parts[place:place] = _sections(name, taken)
    called.__doc__ = "\n\n".join(parts)
    called.__signature__ = signature  # type: ignore[attr-defined]
    return called


def _sections(function: str, taken: tuple[str, ...]) -> Iterator[str]:
    """What a docstring says of settings, under their headings."""
    for group in get_args(Group):
        lines = [f"{name}: {help_of(name, function)}" for name in taken if OPTIONS[name].group == group]
        for typed, called in _CALLED.items():
            lines = [line.replace(typed, called) for line in lines]
        wrapped = [
            textwrap.fill(line, _WIDTH, initial_indent="    ", subsequent_indent="        ", break_on_hyphens=False)
            for line in lines
        ]
        if lines:
            yield "\n".join([f"{group}:", *wrapped])


def keyword_type(name: str) -> str:
    """The type of a setting's keyword, as it is written. None stands for what was not given."""
    hint, path = TYPES[name].__origin__, OPTIONS[name].path
    if _is_several(name):
        return _written(hint, path=path)
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return " | ".join([*(_written(kind, path=path) for kind in members if kind is not NoneType), "None"])


def _is_several(name: str) -> bool:
    hint = TYPES[name].__origin__
    return get_origin(hint) is dict or (get_origin(hint) is tuple and get_args(hint)[-1] is Ellipsis)


def _written(kind: Any, *, path: bool = False) -> str:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _written(arguments[0], path=path)
    if origin is Literal:
        return "Literal[{}]".format(", ".join(f'"{word}"' for word in arguments))
    if origin is tuple and arguments[-1] is Ellipsis:
        one = _written(arguments[0], path=path)
        return f"{one} | Sequence[{one}]" if path else f"Sequence[{one}]{' | str' if arguments[0] is int else ''}"
    if origin is tuple:
        return f"tuple[{', '.join(map(_written, arguments))}]"
    if origin is dict:
        return f"Mapping[str, {_written(arguments[1])}] | Sequence[str]"
    return "str | Path" if path else str(kind.__name__)
