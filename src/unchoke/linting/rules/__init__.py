"""The rules, one per file, by name; and names as people type them. A rule's file is only imported when it is asked for.

A rule's code is its file's name with dashes; a new rule is a new file.
In come codes and groups as typed, out go loaded rules or a usage error that names what was probably meant. Runs no rule.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pkgutil import iter_modules

from unchoke.code.program import Program
from unchoke.core.errors import UsageError, list_some
from unchoke.linting.rule import Hit, Rule

NAMES = tuple(sorted(module.name for module in iter_modules(__path__)))
CODES = tuple(name.replace("_", "-") for name in NAMES)
GROUPS = ("input", "device", "resume", "process", "compute")
_NEAR = 0.5


@dataclass(frozen=True)
class LoadedRule:
    """A rule with its check and its page; `nits` says whether what hardly matters is wanted of it."""

    rule: Rule
    check: Callable[[Program], Iterator[Hit]]
    page: str
    nits: bool = True


def load_rule(code: str) -> LoadedRule:
    """The rule of this code."""
    module = import_module(f"unchoke.linting.rules.{code.replace('-', '_')}")
    return LoadedRule(replace(module.RULE, code=code), module.check, (module.__doc__ or "").strip())


def all_rules() -> list[LoadedRule]:
    """Every rule there is, by group and then by code."""
    return sorted(map(load_rule, CODES), key=lambda loaded: (GROUPS.index(loaded.rule.group), loaded.rule.code))


def rule_named(code: str) -> LoadedRule:
    """The rule of this code; dashes and underscores are the same."""
    wanted = code.strip().lower().replace("_", "-")
    for loaded in all_rules():
        if loaded.rule.code == wanted:
            return loaded
    raise _unknown([code], [loaded.rule.code for loaded in all_rules()])


def split_names(typed: Iterable[str] | None) -> list[str]:
    """``["input,device", "host-sync"]`` as three names; a name that is neither a rule nor a group is a usage error."""
    names = [name.strip() for entry in typed or () for name in entry.split(",") if name.strip()]
    known = [*GROUPS, *(loaded.rule.code for loaded in all_rules())] if names else []
    unknown = [name for name in names if name not in known]
    if unknown:
        raise _unknown(unknown, known)
    return names


def _unknown(names: Sequence[str], known: Sequence[str]) -> UsageError:
    near = list(dict.fromkeys(match for name in names for match in difflib.get_close_matches(name.lower(), known, 3, _NEAR)))
    meant = f"did you mean {' or '.join(near[:3])}? " if near else ""
    return UsageError(
        f"no rule is called {list_some([repr(name) for name in names])}",
        code="unknown-rule",
        why=f"{meant}rules are in the groups {', '.join(GROUPS)}",
        try_="unchoke lint --list-rules",
    )
