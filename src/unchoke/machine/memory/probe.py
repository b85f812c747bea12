"""What does a step take? Each batch size is tried for real in a fresh process of its own.

In: the name of a function ("module:function"), its settings, and batch sizes. Out: a `ProbeResult` for each size tried, from
small to large, up to the first that does not fit. Running out of memory, being killed and taking too long are answers. Any other
error of the function is a bug: it is raised here, with the traceback of the process it happened in. What a step is, is not known
here. The last part of the file is the other end: it imports the function, calls it once, and answers with what was measured or
how it failed. Whatever the function prints goes to stderr. It never outlives the process that asked: it ends when its input
closes.
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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from unchoke.core.units import format_bytes, format_seconds
from unchoke.machine.memory.memory_watch import own_bytes
from unchoke.machine.memory.oom import OutOfMemory, out_of_memory

ProbeOutcome = Literal["ok", "out of memory", "killed", "timed out"]
_LOOK_EVERY_S = 0.005
_TAIL_BYTES = 4_000
_END_WITHIN_S = 5.0
_CHILD = "from unchoke.machine.memory.probe import answer_one; answer_one()"


@dataclass(frozen=True)
class StepCost:
    """What one step took: the peak of the whole process (or device), and what is known of its parts, in bytes by name.

    The parts the plan knows: weights, gradients, optimizer, cache, and baseline (what was there before the network).
    """

    peak_bytes: int
    seconds_per_step: float
    parts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ProbeResult:
    """What came of one batch size. `fact` says it in words; `seconds` is all the process took, `start_s` until its step began."""

    batch: int
    outcome: ProbeOutcome
    measured: StepCost | None = None
    fact: str = ""
    seconds: float = 0.0
    start_s: float = 0.0

    @property
    def fits(self) -> bool:
        return self.measured is not None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ProbeResult:
        measured = values["measured"]
        return cls(**{**values, "measured": None if measured is None else StepCost(**measured)})


class ProbeFailed(RuntimeError):  # noqa: N818 (reads as what happened)
    """A probe ended in a way that tells nothing about memory; the message holds what the process said last."""


def probe(
    target: str,
    spec: Any,
    batches: Sequence[int],
    *,
    timeout_s: float,
    limit_bytes: int | None = None,
    given_up: threading.Event | None = None,
    on_probed: Callable[[ProbeResult], None] = lambda _: None,
) -> list[ProbeResult]:
    """Try `function(spec, batch) -> Measured` for each batch size, smallest first, until one does not fit.

    `limit_bytes` bounds the ordinary memory of each process: one that passes it is ended before the machine has to swap. Leave it
    out where the memory of a device is meant; there the function itself sets the limit. Once `given_up` is set, nobody waits for
    the answer any more.
    """
    found: list[ProbeResult] = []
    for batch in sorted(set(batches)):
        found.append(_probe_one(target, spec, batch, timeout_s=timeout_s, limit_bytes=limit_bytes, given_up=given_up))
        on_probed(found[-1])
        if not found[-1].fits:
            break
    return found


def _probe_one(
    target: str, spec: Any, batch: int, *, timeout_s: float, limit_bytes: int | None, given_up: threading.Event | None
) -> ProbeResult:
    started_s = time.monotonic()
    request = pickle.dumps((target, spec, batch, started_s))
    with tempfile.TemporaryFile() as stderr:
        process = _start(stderr)
        answers: list[Answer] = []
        try:
            stopped = _converse(process, request, answers, timeout_s=timeout_s, limit_bytes=limit_bytes, given_up=given_up)
            if answers:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_END_WITHIN_S)
        finally:
            _kill(process)
        seconds = time.monotonic() - started_s
        if answers:
            return _from_answer(batch, answers[0], seconds)
        outcome, fact = stopped or _from_end(batch, process.returncode, _tail(stderr))
        return ProbeResult(batch, outcome, fact=fact, seconds=seconds)


def _start(stderr: IO[bytes]) -> subprocess.Popen[bytes]:
    """A fresh interpreter that finds the modules this one finds, without importing the caller's script."""
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,  # a Ctrl-C is for this process, which then ends the other one
    )


def _converse(
    process: subprocess.Popen[bytes],
    request: bytes,
    answers: list[Answer],
    *,
    timeout_s: float,
    limit_bytes: int | None,
    given_up: threading.Event | None,
) -> tuple[ProbeOutcome, str] | None:
    """Ask, and wait for the answer to arrive in `answers`. If it takes too long or too much, say so instead."""
    assert process.stdin is not None
    deadline_s = time.monotonic() + timeout_s
    reader = threading.Thread(target=_read_answer, args=(process, answers), daemon=True)
    reader.start()
    with suppress(BrokenPipeError):
        process.stdin.write(request)
        process.stdin.flush()
    while reader.is_alive():
        reader.join(_LOOK_EVERY_S)
        if limit_bytes is not None and (held := own_bytes(process.pid)) > limit_bytes:
            return "out of memory", f"it held {format_bytes(held)}, more than the {format_bytes(limit_bytes)} allowed"
        if time.monotonic() > deadline_s:
            return "timed out", f"no answer within {format_seconds(timeout_s)}"
        if given_up is not None and given_up.is_set():
            return "timed out", "nobody waits for it any more"
        if process.poll() is not None:
            reader.join(_END_WITHIN_S)  # what it said last may still be in the pipe
            break
    return None


def _read_answer(process: subprocess.Popen[bytes], answers: list[Answer]) -> None:
    assert process.stdout is not None
    with suppress(EOFError, OSError, ValueError, pickle.UnpicklingError):  # it ended without an answer, or in the middle of it
        answers.append(pickle.load(process.stdout))


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the process, and what it started, if it is still there; its exit code is known afterwards."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            pipe.close()  # type: ignore[union-attr]


def _from_answer(batch: int, answer: Answer, seconds: float) -> ProbeResult:
    if answer.lack is not None:
        return ProbeResult(batch, "out of memory", fact=answer.lack.message, seconds=seconds, start_s=answer.start_s)
    if answer.traceback_text:
        raise _error(batch, answer)
    measured: StepCost = answer.value
    fact = f"{format_bytes(measured.peak_bytes)}, {format_seconds(measured.seconds_per_step)} a step"
    return ProbeResult(batch, "ok", measured, fact, seconds, answer.start_s)


def _error(batch: int, answer: Answer) -> BaseException:
    last_line = answer.traceback_text.strip().splitlines()[-1]
    error: BaseException = pickle.loads(answer.error) if answer.error else ProbeFailed(last_line)
    error.add_note(f"in the process that tried a batch of {batch}:\n{answer.traceback_text}")
    return error


def _from_end(batch: int, code: int, said: str) -> tuple[ProbeOutcome, str]:
    """The process ended without an answer: was that for lack of memory?"""
    if out_of_memory(code) is not None:
        return "killed", "the process was killed, as systems do that run out of memory"
    if lack := out_of_memory(said):
        return "out of memory", lack.message
    raise ProbeFailed(f"the process that tried a batch of {batch} ended with exit code {code} and no answer; it said:\n{said}")


def _tail(stderr: IO[bytes]) -> str:
    stderr.seek(0, io.SEEK_END)
    stderr.seek(max(0, stderr.tell() - _TAIL_BYTES))
    return stderr.read().decode(errors="replace").strip()


@dataclass(frozen=True)
class Answer:
    """What became of the call: its value, or the memory that ran out, or an error (pickled, where that works) and where from."""

    value: Any = None
    lack: OutOfMemory | None = None
    error: bytes = b""
    traceback_text: str = ""
    start_s: float = 0.0


def answer_one() -> None:
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
