"""Watching a Python process that somebody else wrote: started by `inject/sitecustomize.py`, nothing here runs by itself.

In comes the environment that `unchoke profile` sets; out goes one file of JSON lines per process (see `recorder.py`). Each module
has `install(recorder)`: it waits for the library it looks at to be imported, and replaces some of its functions by timed ones.
The standard library is all it imports: the script's interpreter may hold nothing else.
"""

from __future__ import annotations

import os
from importlib import import_module

FOLDER = "UNCHOKE_WATCH_DIR"
"""Where the files go; without it nothing is watched."""
PARENT = "UNCHOKE_WATCH_PARENT"
"""The process that ran the command: its child is watched from its first line, others from their first `import torch`."""
SCRATCH = "UNCHOKE_WATCH_SCRATCH"
"""Set for a run that must leave no trace: where what it writes goes instead."""

_CORE = ("stepping", "loading")
_DETAIL = ("calls", "sampler", "networks")


def start() -> None:
    """Watch this process, if the environment asks for it."""
    from unchoke_doctor.watch import hooks

    role = "main" if os.environ.get(PARENT) == str(os.getppid()) else "other"
    if os.environ.get(SCRATCH):
        _watch(role, (*_CORE, "rerun"), strictly=True)
    elif role == "main":
        _watch(role, (*_DETAIL, *_CORE))
    else:
        hooks.when_imported("torch", lambda: _watch(role, (*_DETAIL, *_CORE)))


def _watch(role: str, names: tuple[str, ...], *, strictly: bool = False) -> None:
    """Install the modules of these names. `strictly`: one that fails ends the process, since files might not be protected."""
    from unchoke_doctor.watch import recorder as record

    recorder = record.begin(os.environ[FOLDER], role)
    for name in names:
        try:
            import_module(f"unchoke_doctor.watch.{name}").install(recorder)
        except Exception as error:
            if strictly:
                raise
            recorder.note(f"not watched: {name} ({type(error).__name__}: {error})")
    record.run(recorder)
