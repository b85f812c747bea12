"""`unchoke profile` on training scripts with one planted choke each, and on healthy ones: is the right line and cause first?

Five sets. `chokes/` was planted by those who wrote the first diagnosis. `strangers/`, `newcomers/`, `latecomers/` and `k` were
written by people who knew nothing of its rules; the last is not in this repository. `profile_expected.toml` says what is planted
where. Scripts run as they are, one at a time, in processes of their own.

    python benches/bench_profile.py bench-out                               # the four sets of this repository, about 25 minutes
    python benches/bench_profile.py bench-out --set strangers k --k FOLDER  # FOLDER holds scripts/, healthy/, prep.py, wavs.py
    python benches/bench_profile.py bench-out --again                       # judge the recordings of the last run anew
    python benches/bench_profile.py bench-out --overhead --passes 3         # what watching costs, in CPU time and in time

A line is right if the report's first line or the first finding stands on an expected line. A healthy script is accused if a
choke is said to cost a tenth of its training or more. OMP_WAIT_POLICY=PASSIVE is set unless it is set already: on a busy machine
torch's threads spend many times the work's time waiting for each other, in every script alike. Figures go to
`bench-out/profile.json` as well.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from common import say

HERE = Path(__file__).parent
SETS = ("chokes", "strangers", "newcomers", "latecomers", "k")
ACCUSED = 0.10


@dataclass(frozen=True)
class Script:
    """One script: how it is run, and what should be said of it."""

    set: str
    name: str
    command: tuple[str, ...]
    folder: Path
    python_path: tuple[str, ...]
    causes: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        path = [*self.python_path, *filter(None, [os.environ.get("PYTHONPATH", "")])]
        return {"OMP_WAIT_POLICY": "PASSIVE", **os.environ, "PYTHONPATH": os.pathsep.join(path)}


@dataclass
class Row:
    """What was said of one script."""

    set: str
    name: str
    causes: tuple[str, ...]
    lines: tuple[str, ...]
    first_line: str = ""
    found: list[tuple[str, str, float]] = field(default_factory=list)
    headroom: float | None = None
    note: str = ""

    @property
    def right_line(self) -> bool:
        return bool(self.lines) and (self.first_line in self.lines or (bool(self.found) and self.found[0][1] in self.lines))

    @property
    def right_cause(self) -> bool:
        return bool(self.found) and self.found[0][0] in self.causes

    @property
    def accused(self) -> bool:
        return not self.causes and any(share >= ACCUSED for _, _, share in self.found)


def scripts_of(name: str, data: Path, only: Sequence[str]) -> list[Script]:
    expected = tomllib.loads((HERE / "profile_expected.toml").read_text(encoding="utf-8"))[name]
    found = []
    for script, planted in expected.items():
        if only and script not in only:
            continue
        kind = "healthy" if planted.get("healthy") else "scripts"
        path: tuple[str, ...] = ()
        if name == "chokes":
            command, file = (sys.executable, str(HERE / name / script / "train.py"), "--data", str(data / name)), "train.py"
        else:
            folder = (data if name == "k" else HERE) / name / kind
            if script == "e9_accum":  # healthy, and kept beside the others
                folder = folder.parent / "scripts"
            package = (folder / script / "train.py").exists()
            command = (sys.executable, "-m", f"{script}.train") if package else (sys.executable, str(folder / f"{script}.py"))
            file, path = f"{script}.py", (str(folder), str(folder.parent))
        lines = tuple(str(line) if ":" in str(line) else f"{file}:{line}" for line in planted.get("lines", []))
        found.append(Script(name, script, command, data / name, path, tuple(planted.get("cause", ())), lines))
    return found


def make_data(name: str, data: Path, k_folder: Path | None) -> None:
    folder = data / name
    if (folder / ".made").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    if name == "k":
        if k_folder is None:
            raise SystemExit("--set k needs --k FOLDER")
        shutil.copytree(k_folder, folder, dirs_exist_ok=True)
        for script in ("prep.py", "wavs.py"):
            subprocess.run([sys.executable, str(folder / script)], check=True, cwd=folder)
    else:
        options = ["--to", str(folder)] if name == "chokes" else []
        subprocess.run([sys.executable, str(HERE / name / "make_data.py"), *options], check=True, cwd=folder)
    (folder / ".made").touch()


def profiled(script: Script, kept: Path) -> dict[str, Any]:
    """The result of `unchoke profile`; its recording goes to `kept`."""
    with tempfile.TemporaryDirectory() as out:
        words = [sys.executable, "-m", "unchoke_doctor", "profile", "--json", "--out", out, "--", *script.command]
        done = subprocess.run(words, capture_output=True, text=True, cwd=script.folder, env=script.environment)
        try:
            result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])["result"]
        except (IndexError, ValueError, KeyError):
            raise SystemExit(f"profiling {script.name} exited {done.returncode}\n{done.stderr[-3000:]}") from None
        shutil.copyfile(result["files"]["recording"], kept)
    return result


def judged_again(kept: Path) -> dict[str, Any]:
    """The same from a recording that was kept."""
    from unchoke_doctor.causes.diagnose import diagnose
    from unchoke_doctor.profile import ScriptProfile
    from unchoke_doctor.recording import Recording

    recording = Recording.from_dict(json.loads(kept.read_text(encoding="utf-8")))
    return ScriptProfile(recording, diagnose(recording), kept.parent, "").to_dict()


def row_of(script: Script, result: dict[str, Any]) -> Row:
    def place(row: dict[str, Any], path: str) -> str:
        return f"{Path(row[path] or '').name}:{row['line']}"

    row = Row(script.set, script.name, script.causes, script.lines)
    row.first_line = place(result["lines"][0], "file") if result["lines"] else ""
    row.found = [(one["code"], place(one, "path"), one["evidence"]["share"]) for one in result["findings"]]
    row.headroom = result["headroom"]["share"] if result["headroom"] else None
    row.note = f"exit code {result['exit_code']}" if result["exit_code"] else "" if result["steps"] else "no step seen"
    return row


def show(row: Row) -> None:
    if row.causes:
        verdict = f"line {'right' if row.right_line else 'WRONG'}, cause {'right' if row.right_cause else 'WRONG'}"
    else:
        verdict = "ACCUSED" if row.accused else "left alone"
    found = ", ".join(f"{code} {place} {share:.0%}" for code, place, share in row.found[:3])
    room = f"{row.headroom:.0%}" if row.headroom is not None else "-"
    print(f"{row.set + '.' + row.name:<36}{verdict:<26} head-room {room:>4}  first line {row.first_line}  {row.note}")
    print(f"{'':<36}found: {found or '-'}", flush=True)


def summarise(rows: Sequence[Row]) -> dict[str, Any]:
    choked, healthy = [row for row in rows if row.causes], [row for row in rows if not row.causes]
    return {
        "choked": len(choked),
        "line_first": sum(row.right_line for row in choked),
        "cause_first": sum(row.right_cause for row in choked),
        "healthy": len(healthy),
        "accused": [row.name for row in healthy if row.accused],
    }


def measure_overhead(scripts: Sequence[Script], passes: int) -> dict[str, Any]:
    """Plain and watched runs by turns: all CPU seconds of the command and its children, and the time it takes."""
    shares: dict[str, tuple[float, float]] = {}
    for script in scripts:
        pairs = []
        for _ in range(passes):
            with tempfile.TemporaryDirectory() as out:
                watched = [sys.executable, "-m", "unchoke_doctor", "profile", "--no-replay", "--out", out, "--", *script.command]
                pairs.append([_used(words, script) for words in (script.command, watched)])
        cpu, wall = (statistics.median(watched[place] / plain[place] for plain, watched in pairs) - 1 for place in (0, 1))
        shares[script.name] = (cpu, wall)
        print(f"{script.name:<28}CPU {cpu:+6.1%}  time {wall:+6.1%}", flush=True)
    cpus, walls = ([shares[name][place] for name in shares] for place in (0, 1))
    ways = {"median": statistics.median, "worst": max}
    return {f"{kind}_{name}": way(found) for kind, found in (("cpu", cpus), ("time", walls)) for name, way in ways.items()}


def _used(words: Sequence[str], script: Script) -> tuple[float, float]:
    """CPU seconds of a command and all it started, and its time."""
    before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(words, capture_output=True, cwd=script.folder, env=script.environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.perf_counter() - began_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("bench-out"), help="where data, recordings and figures go")
    parser.add_argument("--set", nargs="*", choices=SETS, default=list(SETS[:-1]), help="these sets alone")
    parser.add_argument("--k", type=Path, help="the folder of the set k")
    parser.add_argument("--only", nargs="*", default=[], help="these scripts alone")
    parser.add_argument("--again", action="store_true", help="run nothing: judge the recordings that were kept")
    parser.add_argument("--overhead", action="store_true", help="only what watching costs")
    parser.add_argument("--passes", type=int, default=1, help="with --overhead: how often each script runs")
    typed = parser.parse_args()
    data, kept = (typed.folder / "data").resolve(), (typed.folder / "recordings").resolve()
    kept.mkdir(parents=True, exist_ok=True)
    if not typed.again:
        for name in typed.set:
            make_data(name, data, typed.k)
    scripts = [script for name in typed.set for script in scripts_of(name, data, typed.only)]
    if typed.overhead:
        say("profile-overhead", passes=typed.passes, scripts=len(scripts), **measure_overhead(scripts, typed.passes))
        return
    rows = []
    for script in scripts:
        file = kept / f"{script.set}.{script.name}.json"
        if typed.again and not file.exists():
            continue
        rows.append(row_of(script, judged_again(file) if typed.again else profiled(script, file)))
        show(rows[-1])
    figures = {name: summarise([row for row in rows if row.set == name]) for name in typed.set}
    figures["all"] = summarise(rows)
    for name, found in figures.items():
        say(f"profile-{name}", **found)
    record = {"sets": figures, "rows": [asdict(row) for row in rows]}
    (typed.folder / "profile.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
