"""A file that a user named for a command to read: a pipe (it would be waited for) or a device (it may have no end) is refused.

In: a path. Out: nothing, or a `UsageError`. Whether it is there, and what it holds, is for those to say who read it.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from unchoke.core.errors import UsageError
from unchoke.core.listing import special_kind


def refuse_special(path: Path | str) -> None:
    """Refuse what is there and is neither a file nor a folder."""
    try:
        what = special_kind(os.stat(path).st_mode)
    except (OSError, ValueError):  # unchoke: ignore[blank-on-error]  whoever reads it says what is wrong with it
        return
    if what:
        raise UsageError(
            f"{path} is {what}, not a file",
            why="it would be waited for, might have no end, and could not be read a second time",
            try_=f"cat {shlex.quote(str(path))} > FILE, then give that file",
        )
