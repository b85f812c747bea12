"""What one cell of a notebook costs, measured inside the process that runs it.

Between `begin` and `end`: seconds, CPU seconds with those of child processes, the peak of resident memory, bytes read and
written, memory of CUDA devices and waiting for a DataLoader where the notebook has imported torch. `watch_cells` does so for
every cell of an IPython kernel and leaves JSON lines in a file. That kernel may have no unchoke: this file is handed to it as
text, needs nothing but the standard library, and changes nothing that outlasts a cell but torch's count of peak memory.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

EVERY_S = 0.05
EVERY_EXACT_S = 0.25
TELL_EVERY_S = 0.5
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_MOST_CHILDREN = 64


class Meter:
    """Measures one stretch of work of this process at a time; `on_sample` hears how far it is, about twice a second."""

    def __init__(self, on_sample: Callable[[dict[str, Any]], None] | None = None) -> None:
        self._on_sample = on_sample
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._start: dict[str, Any] = {}
        self._peak_bytes = 0
        self._children_bytes = 0
        self._waiting = WaitMeter()

    def begin(self) -> None:
        """Start; the clock is read last, so that nothing of ours is in it."""
        self._peak_bytes = self._children_bytes = 0
        self._waiting = WaitMeter()
        self._waiting.start()
        _reset_device_peak()
        self._start = {"exact": _reset_peak(), "rss": rss_bytes(), "io": _io_bytes(), "cpu": cpu_s()}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, args=(self._ended,), name="unchoke-cell", daemon=True)
        self._thread.start()
        self._start["wall"] = time.perf_counter()

    def end(self) -> dict[str, Any]:
        """Stop, and what it took."""
        figures = self.so_far()
        self._ended.set()
        self._waiting.stop()
        return figures

    def so_far(self) -> dict[str, Any]:
        """What it took until now. Sizes that this system does not tell are None."""
        wall_s = time.perf_counter() - self._start["wall"]
        used_s = cpu_s() - self._start["cpu"]
        self._look()
        before, after = self._start["io"], _io_bytes()
        moved = [after[place] - before[place] for place in (0, 1)] if before and after else [None, None]
        return {
            "wall_s": wall_s,
            "cpu_s": max(0.0, used_s),
            "rss_before_bytes": self._start["rss"],
            "rss_after_bytes": rss_bytes(),
            "peak_rss_bytes": self._peak_bytes or None,
            "children_peak_bytes": self._children_bytes,
            "device_peak_bytes": _device_peak_bytes(),
            "read_bytes": moved[0],
            "written_bytes": moved[1],
            "wait_s": self._waiting.seconds,
            "batches": self._waiting.batches,
            "steps": self._waiting.steps,
        }

    def _look(self) -> None:
        """Raise the peaks to what is there now; the system's own peak, where it was reset, misses nothing between two looks."""
        own = (_peak_bytes() if self._start["exact"] else None) or rss_bytes() or 0
        self._peak_bytes = max(self._peak_bytes, own)
        self._children_bytes = max(self._children_bytes, sum(_rss_of(child) for child in children()))

    def _sample(self, ended: threading.Event) -> None:
        """Look now and then: seldom where the system keeps the peak itself, and only child processes may be missed."""
        told_s = time.perf_counter()
        every_s = EVERY_EXACT_S if self._start["exact"] else EVERY_S
        while not ended.wait(every_s):
            self._look()
            now_s = time.perf_counter()
            if self._on_sample is not None and "wall" in self._start and now_s - told_s >= TELL_EVERY_S:
                told_s = now_s
                self._on_sample(self.so_far())


class WaitMeter:
    """Seconds this thread waits for batches of a DataLoader, and optimizer steps, between `start` and `stop`."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.batches = 0
        self.steps = 0
        self._undo: list[Callable[[], None]] = []

    def start(self) -> None:
        """Watch torch, if it is there already."""
        owner = getattr(sys.modules.get("torch.utils.data.dataloader"), "_BaseDataLoaderIter", None)
        if owner is not None and "__next__" in vars(owner):
            self._watch_batches(owner)
        count = getattr(sys.modules.get("torch.optim.optimizer"), "register_optimizer_step_post_hook", None)
        if count is not None:
            self._undo.append(count(self._step).remove)

    def stop(self) -> None:
        """Leave torch as it was."""
        while self._undo:
            self._undo.pop()()

    def _step(self, *_: Any) -> None:
        self.steps += 1

    def _watch_batches(self, owner: Any) -> None:
        original = owner.__next__
        here = threading.get_ident()

        def timed(iterator: Any) -> Any:
            began_s = time.perf_counter()
            try:
                batch = original(iterator)
                self.batches += 1
                return batch
            finally:
                if threading.get_ident() == here:
                    self.seconds += time.perf_counter() - began_s

        owner.__next__ = timed
        self._undo.append(lambda: setattr(owner, "__next__", original))


def watch_cells(shell: Any, path: str) -> None:
    """Measure every cell that `shell` runs from now on; what each took goes to the file `path`, with the id of its request."""
    recorder = _Recorder(shell, path)
    shell.events.register("pre_run_cell", recorder.before)
    shell.events.register("post_run_cell", recorder.after)


class _Recorder:
    """One JSON line when a cell begins, some while it runs, one when it ends. Cells that a cell runs count as part of it."""

    def __init__(self, shell: Any, path: str) -> None:
        self._shell = shell
        self._path = path
        self._meter = Meter(lambda figures: self._tell("running", figures))
        self._request = ""
        self._depth = 0

    def before(self, *_: Any) -> None:
        request = self._requested()
        if self._depth and request == self._request:
            self._depth += 1
            return
        self._request, self._depth = request, 1
        self._tell("begun", {})
        self._meter.begin()

    def after(self, result: Any = None) -> None:
        self._depth = max(0, self._depth - 1)
        if self._depth or not self._request:
            return
        figures = self._meter.end()
        self._tell("ended", {**figures, "line": failing_line(result)})
        self._request = ""

    def _requested(self) -> str:
        """The id of the message that asked for this cell; outside a kernel there is none."""
        parent = self._shell.get_parent() if hasattr(self._shell, "get_parent") else None
        return str(((parent or {}).get("header") or {}).get("msg_id", "-"))

    def _tell(self, state: str, figures: dict[str, Any]) -> None:
        line = json.dumps({"request": self._request, "state": state, **figures})
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(line + "\n")


def failing_line(result: Any) -> int | None:
    """The line of the cell at which it failed; below a cell magic, lines are counted from the magic's own."""
    early = getattr(result, "error_before_exec", None)
    if isinstance(early, SyntaxError):
        return early.lineno
    step = getattr(getattr(result, "error_in_exec", None), "__traceback__", None)
    line, found = None, 0
    while step is not None:
        code = step.tb_frame.f_code
        if code.co_name == "<module>" and _is_cell(code.co_filename):
            line = step.tb_lineno + (1 if found else 0)
            found += 1
        step = step.tb_next
    return line


def _is_cell(name: str) -> bool:
    return name == "<timed exec>" or not (name.startswith("<string") or os.path.exists(name))


def cpu_s() -> float:
    """CPU seconds of this process, of children that ended and of those that still run."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system + sum(_cpu_of(child) for child in children())


def rss_bytes() -> int | None:
    """Resident memory of this process now."""
    text = _read("/proc/self/statm")
    if text:
        return int(text.split()[1]) * _PAGE
    try:
        import psutil  # what IPython kernels bring
    except ImportError:
        return None
    return int(psutil.Process().memory_info().rss)


def children() -> list[int]:
    """Processes that this one started, and theirs, as far as the system tells."""
    own = [thread.native_id for thread in threading.enumerate() if thread.native_id is not None]
    found = [child for thread in own for child in _children_of("self", thread)]
    for child in found:
        if len(found) > _MOST_CHILDREN:
            break
        found += _children_of(str(child), child)
    return found


def _children_of(process: str, thread: int) -> list[int]:
    return [int(word) for word in _read(f"/proc/{process}/task/{thread}/children").split()]


def _rss_of(process: int) -> int:
    text = _read(f"/proc/{process}/statm")
    return int(text.split()[1]) * _PAGE if text else 0


def _cpu_of(process: int) -> float:
    """Seconds of a running process and of its children that ended."""
    fields = _read(f"/proc/{process}/stat").rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[11:15]) / _TICKS if len(fields) > 15 else 0.0


def _io_bytes() -> list[int] | None:
    """Bytes read and written through files and pipes until now, from the page cache or from a disk."""
    facts = dict(line.split(": ") for line in _read("/proc/self/io").splitlines() if ": " in line)
    return [int(facts[name]) for name in ("rchar", "wchar")] if "rchar" in facts else None


def _reset_peak() -> bool:
    """Let the system's own peak of resident memory begin again from here; whether it can."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        return False
    return _peak_bytes() is not None


def _peak_bytes() -> int | None:
    for line in _read("/proc/self/status").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None


def _reset_device_peak() -> None:
    cuda = _cuda()
    if cuda is not None:
        for number in range(cuda.device_count()):
            cuda.reset_peak_memory_stats(number)


def _device_peak_bytes() -> int | None:
    """The most that tensors took on all CUDA devices together; None where torch uses none."""
    cuda = _cuda()
    return sum(cuda.max_memory_allocated(number) for number in range(cuda.device_count())) if cuda is not None else None


def _cuda() -> Any:
    """`torch.cuda`, if the notebook has imported torch and begun to use a device."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    begun = getattr(cuda, "is_initialized", None)
    return cuda if begun is not None and begun() else None


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
