"""The inside of a probe: one process, one request on its input, one answer on its output.

It imports the function, calls it once, and answers with what was measured or how it failed. Whatever the function prints goes to
stderr. It never outlives the process that asked: when its input closes, it ends. `probe.py` is the other end.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from typing import Any

from unchoke.machine.memory.oom import OutOfMemory, out_of_memory


@dataclass(frozen=True)
class Answer:
    """What became of the call: its value, or the memory that ran out, or an error (pickled, where that works) and where from."""

    value: Any = None
    lack: OutOfMemory | None = None
    error: bytes = b""
    traceback_text: str = ""
    start_s: float = 0.0


def main() -> None:
    """Serve one request and end without waiting for the interpreter to tidy up."""
    answers = os.dup(1)
    os.dup2(2, 1)
    target, spec, batch, asked_s = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_asker, daemon=True).start()
    answer = pickle.dumps(_call(target, spec, batch, asked_s))
    with os.fdopen(answers, "wb") as stream:
        stream.write(answer)
    sys.stderr.flush()
    os._exit(0)


def _end_with_asker() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def _call(target: str, spec: Any, batch: int, asked_s: float) -> Answer:
    start_s = 0.0
    try:
        module, _, name = target.partition(":")
        function = getattr(importlib.import_module(module), name)
        start_s = time.monotonic() - asked_s
        return Answer(value=function(spec, batch), start_s=start_s)
    except (Exception, SystemExit) as error:
        lack = out_of_memory(error)
        return Answer(lack=lack, error=_packed(error), traceback_text=traceback.format_exc(), start_s=start_s)


def _packed(error: BaseException) -> bytes:
    """The error as bytes, if it can be read back from them."""
    try:
        packed = pickle.dumps(error)
        pickle.loads(packed)
    except Exception:  # an exception may define any code for this
        return b""
    return packed
