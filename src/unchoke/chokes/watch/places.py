"""Which line of the user's own code is running: the nearest frame that belongs to neither Python, a package nor the watcher.

In: the calling thread's stack, or a code object of any. Out: `(file, line, function)`, or `NOWHERE`. Whether a code object is
the user's is decided once and kept. A script that lives inside an installed package (an example run by its path or with `-m`)
is the user's too: the folder of `__main__` counts, packages installed below it do not. No source is read here, and nothing is
recorded.
"""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType

Place = tuple[str, int, str]

NOWHERE: Place = ("", 0, "")
_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep
_WATCHER = os.path.dirname(__file__) + os.sep
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_TYPED_IN = {"<stdin>", "<string>"}

_known: dict[int, bool] = {}
_decided: dict[int, CodeType] = {}  # hashing a code object takes microseconds, so ids stand for them; what is kept keeps its id
_MAX_KNOWN = 50_000
_decided_for: list[str | None] = [None]


def user_place(depth: int = 1) -> Place:
    """Where the user's code stands in this thread, starting `depth` frames above this function; `NOWHERE` if none of it runs."""
    known = _known
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None:
        code = frame.f_code
        is_user = known.get(id(code))
        if is_user is None:
            is_user = is_user_code(code)
        if is_user:
            return code.co_filename, frame.f_lineno, code.co_qualname
        frame = frame.f_back
    return NOWHERE


def is_user_code(code: CodeType) -> bool:
    """Whether this function was written by the user. What was decided before the script itself was loaded is decided anew."""
    main_file: str | None = getattr(sys.modules.get("__main__"), "__file__", None)
    if main_file != _decided_for[0] or len(_known) > _MAX_KNOWN:
        _decided_for[0] = main_file
        _known.clear()
        _decided.clear()
    if (known := _known.get(id(code))) is None:
        _decided[id(code)] = code
        known = _known[id(code)] = is_user_file(code.co_filename, main_file)
    return known


def is_user_file(file: str, main_file: str | None) -> bool:
    """The rule itself, for a code object's file and the file that Python was started with (None: typed in, or not known yet)."""
    if file.startswith("<"):
        return file in _TYPED_IN and main_file is None
    file = os.path.abspath(file)
    if not _is_installed(file):
        return not file.startswith((_WATCHER, _STANDARD_LIBRARY))
    if main_file is None or file.startswith(_WATCHER):
        return False
    main_file = os.path.abspath(main_file)
    folder = os.path.dirname(main_file) + os.sep
    is_beside = file.startswith(folder) and not folder.endswith(_INSTALLED) and not _is_installed(os.sep + file[len(folder) :])
    return file == main_file or is_beside


def _is_installed(path: str) -> bool:
    return any(folder in path for folder in _INSTALLED)
