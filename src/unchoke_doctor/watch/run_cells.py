"""Runs the cells of a notebook one after the other in this process and measures each: `python run_cells.py JOB.json`.

In comes a job (see `notebook_run.py`), out goes one JSON line when a cell begins and one when it ends, so that a kill loses
nothing. Cells share one `__main__`; magics are taken out; a cell's code is known as `<notebook>#cell7` in tracebacks and to the
sampler. With `steps`, training ends early: after so many optimizer steps in a cell every further pass over a DataLoader gives one
batch, so that loops end by themselves and what they make exists afterwards.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import importlib.util
import inspect
import io
import json
import linecache
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable
from typing import Any

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PASSES = 200
"""Passes over loaders after the limit; a cell that begins more of them is ended."""
_LEAST_S, _MOST = 2.0, 25
"""Steps go on for so many seconds, since a share of shorter training would be a guess; up to this many times the limit."""
_LOOKS = frozenset(
    ("ls", "pwd", "echo", "cat", "head", "tail", "wc", "du", "df", "free", "nproc", "lscpu", "nvidia-smi", "date", "uname")
)
_MAKES = frozenset(("mkdir", "unzip", "tar"))
_SHELL = re.compile(r"^\s*(?:[\w.,\s\[\]]+=\s*)?(?:!|%(?:pip|conda|system|sx)\b)\s*(.*)")
_CD = re.compile(r"^\s*%cd\s+(\S+)\s*$")


class StepsDone(BaseException):
    """Ends a loop that goes on training after its limit; no `except Exception` of the notebook keeps it from that."""


class Meter:
    """What this process spends between `begin` and `end`. None where this system does not say."""

    def begin(self) -> None:
        try:
            with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
                file.write("5")  # the peak begins anew
            self._has_peak = True
        except OSError:
            self._has_peak = False
        cuda = _cuda()
        for number in range(cuda.device_count() if cuda else 0):
            cuda.reset_peak_memory_stats(number)
        self._rss, self._output, self._cpu_s = _status_bytes("VmRSS"), _output_bytes(), _cpu_s()
        self._wall_s = time.perf_counter()

    def end(self) -> dict[str, Any]:
        wall_s, cpu_s = time.perf_counter() - self._wall_s, _cpu_s() - self._cpu_s
        after, cuda = _status_bytes("VmRSS"), _cuda()
        peak = _status_bytes("VmHWM") if self._has_peak else None
        rise = max(0, peak - self._rss) if peak is not None and self._rss is not None else None
        growth = after - self._rss if after is not None and self._rss is not None else None
        device = sum(cuda.max_memory_allocated(number) for number in range(cuda.device_count())) if cuda else None
        return {
            "wall_s": wall_s, "cpu_s": max(0.0, cpu_s), "rss_before_bytes": self._rss, "rss_after_bytes": after,
            "peak_rss_bytes": peak, "rise_bytes": rise, "growth_bytes": growth, "device_peak_bytes": device,
            "output_bytes": _output_bytes() - self._output,
        }  # fmt: skip


def _cpu_s() -> float:
    children = os.times()
    return time.process_time() + children.children_user + children.children_system


def _output_bytes() -> int:
    """What was printed so far: the output goes to a file."""
    sys.stdout.flush()
    return os.fstat(1).st_size


def _status_bytes(name: str) -> int | None:
    try:
        with io.open_code("/proc/self/status") as file:
            found = re.search(rb"%s:\s+(\d+) kB" % name.encode(), file.read())
    except OSError:  # not Linux
        return None
    return int(found[1]) * 1024 if found else None


def _cuda() -> Any:
    """`torch.cuda`, if the notebook has imported torch and begun to use a device."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None


class Training:
    """Counts optimizer steps and batches of the running cell, and ends training after `limit` steps where there is a limit."""

    def __init__(
        self, limit: int | None, when_reached: Callable[[], None] = lambda: None, iterated: Callable[[Any], None] = lambda _: None
    ) -> None:
        self.limit, self._when_reached, self._iterated = limit, when_reached, iterated
        self.begin_cell()

    def begin_cell(self) -> None:
        self.steps = self.batches = self._loose = self._passes = 0
        self.wait_s, self._began_s, self.reached = 0.0, 0.0, False

    def watch(self) -> None:
        """Wait for torch and Keras; what a cell imports is watched from then on."""
        from unchoke_doctor.watch.hooks import when_imported

        when_imported("torch.optim.optimizer", self._watch_steps)
        when_imported("torch.utils.data.dataloader", self._watch_loaders)
        for name in ("torch", "tensorflow", "jax") if self.limit is not None else ():
            when_imported(f"keras.src.backend.{name}.trainer", lambda name=name: self._limit_keras(name))  # type: ignore[misc]

    def _watch_steps(self) -> None:
        sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(lambda *_: self._step())

    def _step(self) -> None:
        self.steps += 1
        if self.limit is None:
            return
        now_s = time.perf_counter()
        self._began_s = self._began_s or now_s
        if self.reached:
            self._loose += 1
            if self._loose > self.limit:
                raise StepsDone
        elif self.steps >= _MOST * self.limit or (self.steps >= self.limit and now_s - self._began_s >= _LEAST_S):
            self.reached = True
            self._when_reached()

    def _watch_loaders(self) -> None:
        module = sys.modules["torch.utils.data.dataloader"]
        iterator_type, loader_type = module._BaseDataLoaderIter, module.DataLoader
        next_batch, begin_pass = iterator_type.__next__, loader_type.__iter__

        def next_of(iterator: Any) -> Any:
            given = getattr(iterator, "_unchoke_given", 0)
            # a pass that trains ends by its steps; one that does not (features, statistics, evaluation) by its batches
            trains = self.steps > getattr(iterator, "_unchoke_steps", 0)
            if self.limit is not None and (given >= 1 if self.reached else not trains and given >= self.limit):
                raise StopIteration
            iterator._unchoke_given = given + 1
            began_s = time.perf_counter()
            batch = next_batch(iterator)
            self.wait_s += time.perf_counter() - began_s
            self.batches += 1
            return batch

        def pass_of(loader: Any) -> Any:
            self._iterated(loader)
            if self.reached:
                self._loose = 0
                self._passes += 1
                if self._passes > _PASSES:
                    raise StepsDone
            iterator = begin_pass(loader)
            iterator._unchoke_given, iterator._unchoke_steps = 0, self.steps
            return iterator

        iterator_type.__next__, loader_type.__iter__ = next_of, pass_of

    def _limit_keras(self, backend: str) -> None:
        for trainer in vars(sys.modules[f"keras.src.backend.{backend}.trainer"]).values():
            if isinstance(trainer, type) and "fit" in vars(trainer):
                self._limit_fit(trainer)

    def _limit_fit(self, trainer: Any) -> None:
        """One epoch of so many steps; the batch size is kept where Keras would make it up from the steps."""
        fit = trainer.fit
        names = list(inspect.signature(fit).parameters)

        def limited(model: Any, *args: Any, **given: Any) -> Any:
            given |= dict(zip(names[1:], args, strict=False))
            given["epochs"] = int(given.get("initial_epoch") or 0) + 1
            given["steps_per_epoch"] = min(self.limit or 1, int(given.get("steps_per_epoch") or self.limit or 1))
            if hasattr(given.get("x"), "shape"):
                given["batch_size"] = given.get("batch_size") or 32
                num_batches = -(-len(given["x"]) // given["batch_size"])
                given["steps_per_epoch"] = max(1, min(given["steps_per_epoch"], num_batches))
            elif given.get("validation_data") is not None and not isinstance(given["validation_data"], tuple):
                given["validation_steps"] = min(self.limit or 1, int(given.get("validation_steps") or self.limit or 1))
            history = fit(model, **given)
            self.steps += given["steps_per_epoch"]
            return history

        trainer.fit = limited


class Runner:
    """One notebook in this process."""

    def __init__(self, job: dict[str, Any]) -> None:
        from unchoke_doctor.watch.trials import Trials

        self._job = job
        self._prepare: Callable[[ast.Module], ast.Module] = lambda tree: tree
        self._results = open(job["results"], "a", encoding="utf-8")  # noqa: SIM115 (open as long as the process runs)
        self._main = types.ModuleType("__main__")
        self._late = False
        self._meter, self._trials, self._has_gpu = Meter(), Trials(), False
        self.training = Training(job["steps"], self._end_record, self._trials.iterated)

    def run(self) -> None:
        from unchoke_doctor.code.source import read_source

        self.training.watch()
        source = read_source(self._job["read"])
        names = {"display": _display, "get_ipython": _Shell, "_unchoke_shell": self._shell, "__builtins__": builtins}
        vars(self._main).update(names if source.is_notebook else {"__file__": self._job["read"], "__builtins__": builtins})
        sys.modules["__main__"], sys.argv = self._main, [self._job["read"]]
        builtins.input = _no_input
        if self._job["scratch"]:
            from unchoke_doctor.watch import stand_ins

            trees = [ast.parse(_with_shell_lines(cell)) for cell in source.cells if cell.executed]
            self._prepare = stand_ins.install(self._job, trees, self.tell)
            self._trials.watch()
        for cell in source.cells:
            if cell.kind == "code" and not self._run_cell(cell):
                break

    def tell(self, **fields: Any) -> None:
        self._results.write(json.dumps(fields) + "\n")
        self._results.flush()

    def _run_cell(self, cell: Any) -> bool:
        """Run one cell; whether the next one may follow."""
        number = cell.number or 0
        skip = number in self._job["skip"] or not cell.text.strip()
        if skip or (not cell.executed and cell.problem is None):
            self.tell(cell=number, status="skipped", error="" if skip else self._write_file(cell))
            return True
        self.tell(cell=number, status="begun", at=time.time())
        self.training.begin_cell()
        self._begin_record(number)
        late = threading.Timer(self._job["timeout_s"], self._interrupt)
        late.daemon = True
        late.start()
        self._late, status, error, line = False, "ok", "", None
        self._meter.begin()
        try:
            self._execute(cell, number)
        except StepsDone:
            status = "cut"
        except BaseException as raised:  # whatever a cell raises, SystemExit and KeyboardInterrupt too
            status, error, line = "failed", _one_line(raised), _line_of(raised, self._name(number))
            if isinstance(raised, KeyboardInterrupt) and not self._late:
                status, error = "interrupted", "stopped on request"
        finally:
            late.cancel()
        figures = self._meter.end()
        if self._late:
            status, error, line = "timeout", f"interrupted after {self._job['timeout_s']:g} s", None
        elif status == "ok" and self.training.reached:
            status = "cut"
        counted: dict[str, Any] = {"steps": self.training.steps, "batches": self.training.batches, "wait_s": self.training.wait_s}
        self._end_record()
        torch: Any = sys.modules.get("torch")
        self._has_gpu = self._has_gpu or (torch is not None and torch.cuda.is_available())
        counted |= {"trials": self._trials.measure(), "gpu": self._has_gpu}
        for ours, theirs in ((f"{self._job['scratch']}/root", ""), (self._job["work"], self._job["folder"])):
            error = error.replace(ours, theirs) if self._job["scratch"] else error
        self.tell(cell=number, status=status, error=error, line=line, **figures, **counted)
        if "matplotlib.pyplot" in sys.modules:  # as the inline backend does: figures do not pile up
            sys.modules["matplotlib.pyplot"].close("all")
        keeps_going = self._job["keep_going"] or number in self._job["may_fail"]
        return status in ("ok", "cut") or (keeps_going and status != "interrupted")

    def _name(self, number: int) -> str:
        """What tracebacks and the sampler call the cell's code."""
        return f"{self._job['shown']}#cell{number}" if number else str(self._job["shown"])

    def _execute(self, cell: Any, number: int) -> None:
        """Run the cell's code; its last expression is shown, as IPython does."""
        name, python = self._name(number), _with_shell_lines(cell)
        linecache.cache[name] = (len(cell.text), None, cell.text.splitlines(keepends=True), name)
        tree = self._prepare(ast.parse(python, name))
        last = tree.body[-1] if tree.body and number else None
        shown = last.value if isinstance(last, ast.Expr) and not python.rstrip().endswith(";") else None
        for code, is_last in ((ast.Module(tree.body[:-1] if shown else tree.body, []), False), (shown, True)):
            if code is None:
                continue
            whole: Any = ast.Expression(code) if isinstance(code, ast.expr) else code
            compiled = compile(whole, name, "eval" if is_last else "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
            value = eval(compiled, vars(self._main))
            if compiled.co_flags & inspect.CO_COROUTINE:
                value = asyncio.run(value)
            if is_last and value is not None:
                _display(value)

    def _write_file(self, cell: Any) -> str:
        """`%%writefile` cells write their file; cells in other languages are not run, and the report names them."""
        from unchoke_doctor.code.magics import written_file

        written = written_file(cell.text)
        if written is None or not written.name:
            return f"{cell.language or 'other'} cell, not run"
        body = cell.text.lstrip().partition("\n")[2]
        try:
            with open(written.name, "a" if written.append else "w", encoding="utf-8") as file:
                file.write(body if body.endswith("\n") else body + "\n")
        except OSError as error:
            return f"cannot write {written.name}: {error.strerror}"
        return ""

    def _shell(self, command: str) -> list[str]:
        """Run a shell line that only looks, or makes files here; name the others."""
        parts = [shlex.split(part, comments=True) for part in re.split(r"&&|\|\||;|\|", command)] if _closed(command) else [[]]
        if not all(words and _is_harmless(words) for words in parts):
            self.tell(note=f"not run: !{' '.join(command.split())[:120]}")
            return []
        ran = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=False)
        sys.stdout.write(ran.stdout)
        return ran.stdout.splitlines()

    def _interrupt(self) -> None:
        self._late = True
        if hasattr(signal, "pthread_kill"):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        else:
            signal.raise_signal(signal.SIGINT)

    def _begin_record(self, number: int) -> None:
        """A record of its own for each cell, where this process is watched: what cells share is the process alone."""
        recorder = _recorder()
        if recorder is None:
            return
        recorder._folder = os.path.join(self._job["records"], f"cell{number}")
        os.makedirs(recorder._folder, exist_ok=True)
        os.environ["UNCHOKE_WATCH_DIR"] = recorder._folder
        callbacks, sampler = recorder._after_fork, recorder._snapshots["samples"].__self__
        sampler.stop()
        recorder._after_fork = [one for one in callbacks if one.__name__ != "start_thread"]  # the thread that writes is there
        loaders = sys.modules["unchoke_doctor.watch.loading"].loaders
        made_at = loaders.made_at
        recorder.begin_again()
        loaders.made_at = made_at  # by cells before
        recorder._snapshots["modules"].__self__.__init__(recorder)  # it stopped looking, as in a forked child
        recorder.role, recorder._after_fork = "main", callbacks

    def _end_record(self) -> None:
        """Write the record and close it: at the end of a cell, or when it made its steps, since what follows is cut short."""
        recorder = _recorder()
        if recorder is not None and recorder._folder is not None:
            recorder.flush()
            recorder._folder = None


def _recorder() -> Any:
    """The record of this process; None where it is not watched."""
    return getattr(sys.modules.get("unchoke_doctor.watch.recorder"), "_current", None)


def _with_shell_lines(cell: Any) -> str:
    """The cell's Python, with a call in the place of each shell line that was taken out; no line moves."""
    texts, lines = cell.text.splitlines() if cell.number else [], cell.python.splitlines()
    for number, (text, line) in enumerate(zip(texts, lines, strict=False)):
        shell, moved = _SHELL.match(text), _CD.match(text)
        taken = re.search(r"(pass|\[\])\s*$", line)
        if shell and taken:
            command, more = shell[1], number
            while command.endswith("\\") and more + 1 < len(texts):
                more += 1
                command = command[:-1] + texts[more].strip()
            command = f"pip {command}" if text.lstrip().startswith("%pip") else command
            lines[number] = f"{line[: taken.start()]}_unchoke_shell({command!r})"
        elif moved and taken:
            lines[number] = f"{line[: taken.start()]}__import__('os').chdir({moved[1].strip(chr(34) + chr(39))!r})"
    return "\n".join(lines)


def _closed(command: str) -> bool:
    """Whether the line can be read word by word: no variables, no open quotes, nothing redirected."""
    if re.search(r"[{}$`<>]|&(?!&)", command):
        return False
    try:
        shlex.split(command)
    except ValueError:
        return False
    return True


def _is_harmless(words: list[str]) -> bool:
    inside = not any(word.startswith(("/", "~")) or ".." in word for word in words[1:])
    return words[0] in _LOOKS or (words[0] in _MAKES and inside)


def _line_of(raised: BaseException, name: str) -> int | None:
    """The line of the cell's own code at which it failed."""
    if isinstance(raised, SyntaxError) and raised.filename == name:
        return raised.lineno
    line, step = None, raised.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == name and line is None:
            line = step.tb_lineno
        step = step.tb_next
    return line


def _one_line(raised: BaseException) -> str:
    first = str(raised.msg if isinstance(raised, SyntaxError) else raised).strip().splitlines()
    return f"{type(raised).__name__}: {first[0][:200]}" if first else type(raised).__name__


def _display(*values: Any, **_options: Any) -> None:
    for value in values:
        sys.stdout.write(f"{value if isinstance(value, str) else repr(value)}\n")


def _no_input(*_: object) -> str:
    raise EOFError("input() has nobody to answer it here")


class _Shell:
    """What `get_ipython()` gives: every method does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_args, **_options: None


def _load_package() -> None:
    """Make `unchoke_doctor` mean this copy: the notebook's interpreter may have none."""
    if "unchoke_doctor" in sys.modules:
        return
    where = os.path.join(PACKAGE, "__init__.py")
    spec = importlib.util.spec_from_file_location("unchoke_doctor", where, submodule_search_locations=[PACKAGE])
    if spec is None or spec.loader is None:
        raise ImportError(f"no package at {PACKAGE}")
    module = importlib.util.module_from_spec(spec)
    sys.modules["unchoke_doctor"] = module
    spec.loader.exec_module(module)


def main(path: str) -> None:
    _load_package()
    with open(path, encoding="utf-8") as file:
        job = json.load(file)
    sys.path[0] = os.getcwd()  # as in a kernel: modules beside the notebook
    signal.signal(signal.SIGINT, signal.default_int_handler)
    Runner(job).run()


if __name__ == "__main__":
    main(sys.argv[1])
