"""Run a function in a process of its own, and take what it measures as it comes.

In: the name of a generator function ("module:function") and its argument. Out: a `Probe`: every value the function yielded, and
how the process ended. Running out of memory, being killed and taking too long are answers, and the values before them stand.
Any other error of the function is a bug: it is raised here, with the traceback of the process it happened in. What the function
prints goes to stderr. The process never outlives the one that asked: it ends when its input closes.
"""

from __future__ import annotations

import importlib
import io
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from unchoke.core.units import format_bytes, format_seconds
from unchoke.machine.memory.memory_watch import own_bytes
from unchoke.machine.memory.oom import out_of_memory

ProbeOutcome = Literal["ok", "out of memory", "killed", "timed out"]
_LOOK_EVERY_S = 0.005
_TAIL_BYTES = 4_000
_END_WITHIN_S = 5.0
_CHILD = "from unchoke.machine.memory.probe import answer; answer()"


@dataclass(frozen=True)
class Probe:
    """The values a process yielded and how it ended; `fact` says why where that was not well."""

    values: list[Any]
    outcome: ProbeOutcome = "ok"
    fact: str = ""


class ProbeFailed(RuntimeError):  # noqa: N818 (reads as what happened)
    """A process ended in a way that tells nothing about memory; the message holds what it said last."""


def probe(
    target: str,
    spec: Any,
    *,
    timeout_s: float,
    limit_bytes: int | None = None,
    on_value: Callable[[Any], None] = lambda _: None,
) -> Probe:
    """Run `function(spec)` in a fresh process and collect what it yields.

    `limit_bytes` bounds the ordinary memory of the process: it is ended before the machine has to swap. Leave it out where the
    memory of a device is meant; there the function itself sets the limit.
    """
    values: list[Any] = []
    ended: list[tuple[str, str, bytes]] = []
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)  # it finds the modules that this process finds
    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # a Ctrl-C is for this process, which then ends the other one
        )
        assert process.stdin is not None
        assert process.stdout is not None
        said = process.stdout

        def read() -> None:
            with suppress(EOFError, OSError, ValueError, pickle.UnpicklingError):  # it ended without a last word
                while not ended:
                    kind, content = pickle.load(said)
                    (ended if kind == "end" else values).append(content)

        told, reader = 0, threading.Thread(target=read, daemon=True)
        try:
            reader.start()
            with suppress(BrokenPipeError):
                process.stdin.write(pickle.dumps((target, spec)))
                process.stdin.flush()
            deadline_s = time.monotonic() + timeout_s
            while reader.is_alive():
                reader.join(_LOOK_EVERY_S)
                for value in values[told:]:
                    told += 1
                    on_value(value)
                if limit_bytes is not None and (held := own_bytes(process.pid)) > limit_bytes:
                    return Probe(values, "out of memory", f"it held {format_bytes(held)} of {format_bytes(limit_bytes)} allowed")
                if time.monotonic() > deadline_s:
                    return Probe(values, "timed out", f"no answer within {format_seconds(timeout_s)}")
                if process.poll() is not None:
                    reader.join(_END_WITHIN_S)  # what it said last may still be in the pipe
                    break
            if ended:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_END_WITHIN_S)
        finally:
            if process.poll() is None:
                with suppress(ProcessLookupError):  # with all that it started
                    os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):
                    pipe.close()
        for value in values[told:]:
            on_value(value)
        stderr.seek(max(0, stderr.seek(0, io.SEEK_END) - _TAIL_BYTES))
        words = stderr.read().decode(errors="replace").strip()
    if not ended:
        return _from_exit(values, process.returncode, words)
    lack, traceback_text, packed = ended[0]
    if lack or not traceback_text:
        return Probe(values, "out of memory" if lack else "ok", lack)
    error: BaseException = pickle.loads(packed) if packed else ProbeFailed(traceback_text.strip().splitlines()[-1])
    error.add_note(f"in the process that measured:\n{traceback_text}")
    raise error


def _from_exit(values: list[Any], code: int, said: str) -> Probe:
    """The process ended without a last word: was that for lack of memory?"""
    if out_of_memory(code) is not None:
        return Probe(values, "killed", "the process was killed, as systems do that run out of memory")
    if lack := out_of_memory(said):
        return Probe(values, "out of memory", lack.message)
    raise ProbeFailed(f"the process that measured ended with exit code {code} and no answer; it said:\n{said}")


def answer() -> None:
    """The other end: call the function, send what it yields, and end without waiting for the interpreter to tidy up."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    target, spec = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_asker, daemon=True).start()
    end = ("", "", b"")
    try:
        module, _, name = target.partition(":")
        for value in getattr(importlib.import_module(module), name)(spec):
            pickle.dump(("value", value), answers)
            answers.flush()
    except (Exception, SystemExit) as error:
        lack = out_of_memory(error)
        end = (lack.message, "", b"") if lack else ("", traceback.format_exc(), _packed(error))
    pickle.dump(("end", end), answers)
    answers.flush()
    sys.stderr.flush()
    os._exit(0)


def _end_with_asker() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def _packed(error: BaseException) -> bytes:
    """The error as bytes, if it can be read back from them."""
    try:
        packed = pickle.dumps(error)
        pickle.loads(packed)
    except Exception:  # an exception may define any code for this
        return b""
    return packed
