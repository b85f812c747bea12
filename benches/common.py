"""What every bench says beside its numbers: the machine, the versions, the command."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


def machine() -> dict[str, Any]:
    """Enough to know whether a figure applies to another machine."""
    from unchoke.machine.detect import detect_machine

    facts = detect_machine()
    flags = sorted(facts.cpu_flags & {"avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16"})
    names = ("torch", "timm", "openvino", "simplejpeg", "numpy")
    return {
        "cpu": facts.cpu_name,
        "cores": facts.cores,
        "flags": flags,
        "system": platform.platform(),
        "cards": [card.name for card in facts.accelerators],
        "versions": {name: _version(name) for name in names},
    }


def _version(name: str) -> str | None:
    """None where the package is not there: not every machine has every engine."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def say(bench: str, **figures: Any) -> None:
    """One JSON line: the bench, its figures, the machine and the time."""
    line = {"bench": bench, **figures, "machine": machine(), "date": time.strftime("%Y-%m-%d")}
    print(json.dumps(line, default=str))


def unchoke(*words: str) -> tuple[dict[str, Any], float]:
    """Run the command as a user would; its JSON result, and the wall-clock seconds from start to exit."""
    done, seconds = typed(*words)
    if done.returncode:
        raise SystemExit(f"unchoke {' '.join(words)} exited {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])["result"], seconds


def typed(*words: str) -> tuple[subprocess.CompletedProcess[str], float]:
    """Run the command whatever it exits with, and the wall-clock seconds from start to exit."""
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "unchoke", *words, "--json"], capture_output=True, text=True, check=False)
    return done, time.perf_counter() - started


class Stages:
    """An `on_event` that adds up the seconds of stages and shows nothing."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self, event: Any) -> None:
        from unchoke.core.events import StageDone

        if isinstance(event, StageDone):
            self.seconds[event.stage] = self.seconds.get(event.stage, 0.0) + event.seconds


def work_folder() -> Path:
    """Where photos and workspaces of the benches go: the first argument, or `bench-out`."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "bench-out")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
