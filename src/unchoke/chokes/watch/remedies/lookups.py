"""Answers of the file system are remembered: stat, listings, patterns, and the user's own functions that look paths up.

In: functions of `os`, `glob` and `pathlib`. Out: the first answer again, for everything that the script does not write itself.
A function of the user's that asks for many files while a sample is made, and answers with a path or yes or no, is remembered as
a whole: that is what a table of paths would do.
"""

from __future__ import annotations

import glob
import os
import pathlib
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from types import FrameType
from typing import Any

from unchoke.chokes.watch.hooks import Function
from unchoke.chokes.watch.remedies.remedy import Remedy
from unchoke.chokes.watch.stacks import is_user_code

_MAX_ANSWERS = 1_000_000
_LOOKED_AT = 4_096  # lookups whose callers are looked at
_MANY = 32
_MAX_OTHER_ANSWERS = 8

_Key = tuple[Function, Any, tuple[Any, ...], tuple[tuple[str, Any], ...]]


def cached_stat(remedy: Remedy) -> None:
    """Ask for each path and each folder once."""
    answers = _Answers(remedy)
    for name in ("stat", "lstat", "access"):
        remedy.put(os, name, answers.remembered)
    remedy.put(os, "listdir", partial(answers.remembered, give=list))
    remedy.put(os, "scandir", partial(answers.remembered, take=_read_whole, give=_Entries))
    remedy.put(glob, "glob", partial(_patterns_remembered, answers))
    for name in ("glob", "rglob"):
        remedy.put(pathlib.Path, name, partial(_path_patterns_remembered, answers))
    remedy.put(os, "chdir", answers.forgetting)


class _Answers:
    """What was answered, by function and arguments; an error is an answer, too."""

    def __init__(self, remedy: Remedy) -> None:
        self._applying = remedy
        self._known: dict[Any, tuple[str, Any, bool]] = {}
        self._askers = _Askers(remedy)

    def remembered(self, original: Function, *, take: Function | None = None, give: Function | None = None) -> Function:
        """Give what `original` gave for the same path. `take` makes of it what can be kept, `give` of that what is handed out."""
        known, askers = self._known, self._askers

        def ask(path: Any = ".", *args: Any, **options: Any) -> Any:
            if options.get("dir_fd") is not None or not isinstance(path, str | pathlib.PurePath):
                return original(path, *args, **options)
            askers.look()
            key = (original, path, args, tuple(options.items()))
            found = known.get(key)
            if found is None or not self._applying.may_keep(found[0]):
                found = self._ask(key, take)
            else:
                self._applying.did()
            _, answer, failed = found
            if failed:
                raise answer.with_traceback(None)
            return answer if give is None else give(answer)

        return ask

    def _ask(self, key: _Key, take: Function | None) -> tuple[str, Any, bool]:
        original, path, args, options = key
        try:
            answer = original(path, *args, **dict(options))
            found = (os.path.abspath(path), answer if take is None else take(answer), False)
        except OSError as error:
            found = (os.path.abspath(path), error, True)
        if len(self._known) < _MAX_ANSWERS and self._applying.may_keep(found[0]):
            self._known[key] = found
        return found

    def listed(self, key: Any, folder: str, original: Any) -> list[Any]:
        """The result of a search below `folder`, as a list."""
        found = self._known.get(key)
        if found is not None and self._applying.may_keep(found[0]):
            self._applying.did()
        else:
            found = (os.path.abspath(folder), list(original()), False)
            self._known[key] = found
        return list(found[1])

    def forgetting(self, original: Function) -> Function:
        """Relative paths mean something else in another folder."""

        def chdir(path: Any) -> None:
            self._known.clear()
            original(path)

        return chdir


def _read_whole(entries: Any) -> list[Any]:
    with entries:
        return list(entries)


class _Entries:
    """An `os.scandir` over entries that were read before."""

    def __init__(self, entries: list[Any]) -> None:
        self._rows = iter(entries)

    def __iter__(self) -> Iterator[Any]:
        return self._rows

    def __next__(self) -> Any:
        return next(self._rows)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._rows = iter(())


def _patterns_remembered(answers: _Answers, original: Function) -> Function:
    def find(pathname: Any, **options: Any) -> Any:
        if not isinstance(pathname, str):
            return original(pathname, **options)
        key = (original, pathname, repr(options))
        return answers.listed(key, os.path.dirname(pathname) or ".", partial(original, pathname, **options))

    return find


def _path_patterns_remembered(answers: _Answers, original: Function) -> Function:
    def find(self: Any, pattern: Any, **options: Any) -> Iterator[Any]:
        key = (original, self, pattern, repr(options))
        return iter(answers.listed(key, os.fspath(self), partial(original, self, pattern, **options)))

    return find


class _Askers:
    """The user's functions that ask for many files while a sample is made: they are remembered as a whole."""

    def __init__(self, remedy: Remedy) -> None:
        self._applying = remedy
        self._left = _LOOKED_AT
        self._counts: Counter[int] = Counter()

    def look(self) -> None:
        """See who is asking, as long as that is not known."""
        if self._left <= 0 or self._applying.recorder.phase != "getitem":
            return
        self._left -= 1
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and not frame.f_code.co_name.startswith(("__", "<module")):
            if is_user_code(frame.f_code):
                self._counts[id(frame.f_code)] += 1
                if self._counts[id(frame.f_code)] == _MANY:
                    self._remember(frame)
            frame = frame.f_back

    def _remember(self, frame: FrameType) -> None:
        """Find the function that this code is of: in its module, or in the class of what it was called on."""
        code = frame.f_code
        called_on = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
        for owner in (sys.modules.get(frame.f_globals.get("__name__", "")), *type(called_on).__mro__):
            if getattr(vars(owner).get(code.co_name), "__code__", None) is code:
                self._applying.put(owner, code.co_name, partial(_answers_remembered, self._applying))
                return


def _answers_remembered(remedy: Remedy, original: Function) -> Function:
    known: dict[Any, Any] = {}
    others = 0

    def answer(*args: Any, **options: Any) -> Any:
        nonlocal others
        key = (args, tuple(options.items()))
        try:
            found = known.get(key) if others < _MAX_OTHER_ANSWERS else None
        except TypeError:  # an argument that cannot be told from another
            return original(*args, **options)
        if found is not None:
            remedy.did()
            return found
        found = original(*args, **options)
        if isinstance(found, str | bool | os.PathLike):
            known[key] = found
        else:
            others += 1
        return found

    return answer
