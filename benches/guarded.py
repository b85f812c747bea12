"""Parts of a bench that cannot take one another down: each in a process of its own, under a time limit.

In: functions by name, and the arguments the bench was called with. Out: a line on stdout for each figure as it comes, and all of
them in one JSON file where that is wanted. A part that fails shows its traceback, one that takes too long is ended with all that
it started, and the next one runs either way. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import machine


class Figures:
    """The figures of one part: each is printed, and kept in a file for the process that waits."""

    def __init__(self, part: str, file: Path) -> None:
        self.part, self.file = part, file

    def say(self, name: str, value: Any, unit: str = "") -> None:
        """One figure. Numbers are rounded to what a measurement is worth; a dict is shown as it is."""
        value = _rounded(value)
        shown = ", ".join(f"{key} {one}" for key, one in value.items()) if isinstance(value, dict) else f"{value}"
        print(f"{self.part:15} {name:44} {shown} {unit}".rstrip(), flush=True)
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"part": self.part, "name": name, "value": value, "unit": unit}, default=str) + "\n")


@dataclass(frozen=True)
class Part:
    """What a part does, and how long it may take."""

    run: Callable[[argparse.Namespace, Figures], None]
    limit_s: float


def add_guards(parser: argparse.ArgumentParser) -> None:
    """What every bench in parts understands beside its own options; `--inside` is how it starts its own processes."""
    parser.add_argument("--limit-s", type=float, help="seconds each part may take, instead of its own limit")
    parser.add_argument("--inside", help=argparse.SUPPRESS)


def run_parts(bench: str, parts: Mapping[str, Part], args: argparse.Namespace, only: Sequence[str] = ()) -> None:
    """Run the parts that were chosen, one after another; in a process that was started for one part, that part."""
    if args.inside:
        _run_inside(parts[args.inside], Figures(args.inside, _figures_file(args, args.inside)), args)
        return
    unknown = [name for name in only if name not in parts]
    if unknown:
        raise SystemExit(f"there is no part {', '.join(unknown)}; there are {', '.join(parts)}")
    figures, outcomes = [], {}
    with _ending_politely():
        for name in only or parts:
            outcomes[name] = _run_outside(name, args.limit_s or parts[name].limit_s, args)
            file = _figures_file(args, name)
            figures += [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
            _write(args.json, {"bench": bench, "figures": figures, "parts": outcomes})
    about = {"machine": machine(), "date": time.strftime("%Y-%m-%d")}  # only now: what it loads would warm the first part
    _write(args.json, {"bench": bench, "figures": figures, "parts": outcomes, **about})


def _run_inside(part: Part, figures: Figures, args: argparse.Namespace) -> None:
    try:
        part.run(args, figures)
    except (Exception, SystemExit):
        traceback.print_exc()
        figures.say("failed", traceback.format_exc(limit=-1).strip().splitlines()[-1])
        sys.exit(1)


def _run_outside(name: str, limit_s: float, args: argparse.Namespace) -> dict[str, Any]:
    """Start this bench again for one part, and end it with all its processes when its time is over."""
    file = _figures_file(args, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    started = time.perf_counter()
    child = subprocess.Popen([sys.executable, *sys.argv, "--inside", name], start_new_session=os.name == "posix")
    try:
        code: int | str = child.wait(limit_s)
    except subprocess.TimeoutExpired:
        code = f"ended after its {limit_s:.0f} s"
    finally:
        _end(child)
    seconds = round(time.perf_counter() - started, 1)
    print(f"{name:15} {'took' if code == 0 else f'FAILED ({code}), took':44} {seconds} s", flush=True)
    return {"code": code, "seconds": seconds}


def _end(child: subprocess.Popen[bytes]) -> None:
    """The process and, where it leads a group, whatever it started."""
    if child.poll() is None:
        if os.name == "posix":
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
        child.wait()


@contextmanager
def _ending_politely() -> Iterator[None]:
    """A bench that is told to end still ends the part it waits for."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _figures_file(args: argparse.Namespace, part: str) -> Path:
    return Path(args.work) / "figures" / f"{part}.jsonl"


def _write(path: str | None, found: dict[str, Any]) -> None:
    """All that is known so far, so that a bench that is cut short leaves what it had."""
    if path:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(json.dumps(found, indent=1, default=str), encoding="utf-8")


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, float):
        return round(value, 1) if abs(value) >= 100 else round(value, 3)
    return value
