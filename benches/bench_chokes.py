"""Training scripts that choke: is the right cause named first, on the right line, does the repair bring what was promised?

Four sets. `chokes/` was planted by those who wrote the diagnosis, before they wrote it. `strangers/`, `newcomers/` and
`latecomers/` were written by people who knew nothing of its rules: the first was looked at while it was improved, the other two
were scored once, unseen, one after the other, and then looked at. Each script has a repaired twin and perhaps `followed`: the
script after the one edit that the first finding asks for (where it is missing, the twin is just that). `expected.toml` says what
is planted where. Scripts run as they are, one at a time, in processes of their own; their seconds are those that `unchoke
profile` records, of the twin too.

    python benches/bench_chokes.py bench-out                           # all of them, about 40 minutes on two quiet cores
    python benches/bench_chokes.py bench-out --set strangers --only c07_glyphs c24_dqn
    python benches/bench_chokes.py bench-out --overhead --passes 3     # what watching costs, by turns, in CPU time and in time
    python benches/bench_chokes.py bench-out --set planted --others    # also torch.profiler and traceml (pip install traceml-ai)

A promise is the gain that the first finding states, as a ratio; what came true is the ratio of the seconds before and after.
`traceml` asks for two edits in a plain loop (a call at the top, the step in a `with`): it gets a copy of the script with them.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import resource
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
SETS = {
    "planted": HERE / "chokes",
    "strangers": HERE / "strangers",
    "newcomers": HERE / "newcomers",
    "latecomers": HERE / "latecomers",
}
ENOUGH = 0.7
"""The share of the head-room that following the first suggestion should recover."""
NEAR = 1.5
"""By what factor a promised gain may miss what came true."""
ALONE = """
import runpy, sys
from torch.profiler import ProfilerActivity, profile
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
with profile(activities=[ProfilerActivity.CPU]) as profiler:
    runpy.run_path(sys.argv[0], run_name="__main__")
rows = sorted(profiler.key_averages(), key=lambda row: -row.self_cpu_time_total)[:3]
total = sum(row.self_cpu_time_total for row in profiler.key_averages())
print("TOP", "; ".join(f"{row.key} {100 * row.self_cpu_time_total / total:.0f} %" for row in rows))
"""


@dataclass(frozen=True)
class Script:
    """One script of a set: how each of its ways is run, and what should be said of it."""

    name: str
    set: str
    commands: dict[str, list[str]]
    causes: tuple[str, ...]
    lines: tuple[str, ...]
    folder: str = ""

    @property
    def healthy(self) -> bool:
        return not self.causes


def scripts_of(name: str, only: Sequence[str], data: Path) -> list[Script]:
    folder = SETS[name]
    expected = tomllib.loads((folder / "expected.toml").read_text(encoding="utf-8"))
    found = []
    for script, planted in expected.items():
        if only and script not in only:
            continue
        ways = {"train": "scripts", "repaired": "repaired", "followed": "followed"}
        if name == "planted":
            commands = {way: _command(folder / script / way, ["--data", str(data / name)]) for way in ways}
        else:
            ways["train"] = "healthy" if planted.get("healthy") else "scripts"
            commands = {way: _command(folder / where / script) for way, where in ways.items()}
        causes = planted.get("cause", [])
        lines = [
            f"{line}" if ":" in f"{line}" else f"{script if name != 'planted' else 'train'}.py:{line}"
            for line in planted.get("lines", [])
        ]
        found.append(
            Script(
                script,
                name,
                {way: command for way, command in commands.items() if command},
                tuple([causes] if isinstance(causes, str) else causes),
                tuple(lines),
            )
        )
    return found


def _command(path: Path, options: Sequence[str] = ()) -> list[str]:
    """A script, or a package with a `train` module; nothing where there is neither."""
    if path.with_suffix(".py").exists():
        return [sys.executable, str(path.with_suffix(".py")), *options]
    return [sys.executable, "-m", f"{path.name}.train"] if (path / "train.py").exists() else []


def _environment(script: Script, way: str) -> dict[str, str]:
    """Scripts of a set share modules in its folder; packages are run by their names, from the folder of their way."""
    where = {"train": "healthy" if script.healthy else "scripts"}.get(way, way)
    folders = [SETS[script.set] / where, SETS[script.set]] if script.set != "planted" else []
    path = [*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


@dataclass
class Row:
    """What became of one script: seconds of training by way, and what was found."""

    name: str
    set: str
    causes: tuple[str, ...]
    lines: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    found: list[dict[str, Any]] = field(default_factory=list)
    others: dict[str, str] = field(default_factory=dict)

    @property
    def healthy(self) -> bool:
        return not self.causes

    @property
    def right(self) -> bool:
        return bool(self.found) and self.found[0]["code"] in self.causes

    @property
    def right_line(self) -> bool:
        """Whether the first finding points at one of the lines where the choke stands."""
        return bool(self.found) and _place(self.found[0]) in self.lines

    @property
    def headroom_share(self) -> float:
        return 1 - self.seconds["repaired"] / self.seconds["train"] if self.seconds.get("repaired") else 0.0

    @property
    def after_s(self) -> float | None:
        """Seconds once the first suggestion was followed; None where it names another cause."""
        return self.seconds.get("followed", self.seconds.get("repaired")) if self.right else None

    @property
    def recovered_share(self) -> float | None:
        """How much of the head-room the first suggestion recovered."""
        room_s = self.seconds["train"] - self.seconds.get("repaired", 0.0)
        return (self.seconds["train"] - self.after_s) / room_s if self.after_s else None

    @property
    def promised(self) -> float | None:
        return 1 / (1 - self.found[0]["evidence"]["gain_share"]) if self.found else None

    @property
    def came_true(self) -> float | None:
        return self.seconds["train"] / self.after_s if self.after_s else None

    @property
    def off_by(self) -> float | None:
        """The factor between the promise and what came true, however it is off."""
        if self.promised is None or self.came_true is None:
            return None
        return max(self.promised / self.came_true, self.came_true / self.promised)


def _place(finding: dict[str, Any]) -> str:
    return f"{Path(finding['path'] or '').name}:{finding['line']}"


def profiled(script: Script, way: str, data: Path, *options: str) -> dict[str, Any]:
    """The result of `unchoke profile`."""
    command = script.commands[way]
    with tempfile.TemporaryDirectory() as out:
        words = [sys.executable, "-m", "unchoke", "profile", "--json", *options, "--out", out, "--"]
        environment = _environment(script, way)
        done = subprocess.run([*words, *command], capture_output=True, text=True, cwd=data / script.set, env=environment)
    if done.returncode:
        raise SystemExit(f"profiling {script.name} exited {done.returncode}\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])["result"]
    return result


def look_at(script: Script, data: Path, *, passes: int, others: bool) -> Row:
    row = Row(script.name, script.set, script.causes, script.lines)
    took: dict[str, list[float]] = {way: [] for way in script.commands}
    for _ in range(passes):
        for way in script.commands:
            result = profiled(script, way, data, *(() if way == "train" else ("--no-replay",)))
            took[way].append(result["trained_s"])
            if way == "train":
                row.found = [finding for finding in result["findings"] if finding["severity"] != "info"]
    row.seconds = {way: statistics.median(seconds) for way, seconds in took.items()}
    if others:
        file = Path(script.commands["train"][1])
        row.others = {"torch.profiler": torch_profiler(file, data / script.set), "traceml": traceml(file, data / script.set)}
    return row


def measure_overhead(scripts: Sequence[Script], data: Path, passes: int) -> None:
    """Plain and watched runs by turns: all CPU seconds of the command and its children, and the time it takes."""
    shares: dict[str, tuple[float, float]] = {}
    for script in scripts:
        command = script.commands["train"]
        environment = _environment(script, "train")
        pairs = []
        for _ in range(passes):
            with tempfile.TemporaryDirectory() as out:
                watched = [sys.executable, "-m", "unchoke", "profile", "--no-replay", "--out", out, "--", *command]
                pairs.append([_used(words, data / script.set, environment) for words in (command, watched)])
        cpu, wall = (statistics.median(watched[place] / plain[place] for plain, watched in pairs) - 1 for place in (0, 1))
        shares[script.name] = (cpu, wall)
        took = "  ".join(f"{plain[0]:.1f} → {watched[0]:.1f} s" for plain, watched in pairs)
        print(f"{script.name:<24}CPU {cpu:+6.1%}  time {wall:+6.1%}  {took}", flush=True)
    cpus, walls = ([shares[name][place] for name in shares] for place in (0, 1))
    figures = {"median": statistics.median, "worst": max}
    summary = {f"{kind}_{name}": way(found) for kind, found in (("cpu", cpus), ("time", walls)) for name, way in figures.items()}
    say("chokes-overhead", passes=passes, scripts=len(shares), **summary, shares=shares)


def _used(words: Sequence[str], folder: Path, environment: dict[str, str]) -> tuple[float, float]:
    """CPU seconds of a command and all it started, and its time."""
    before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(words, capture_output=True, cwd=folder, env=environment, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.perf_counter() - began_s


def torch_profiler(file: Path, data: Path) -> str:
    """The three operators with the most self CPU time, which is what its table begins with."""
    done = subprocess.run([sys.executable, "-c", ALONE, str(file), "--data", str(data)], capture_output=True, text=True, cwd=data)
    said = re.search(r"^TOP (.*)$", done.stdout, re.MULTILINE)
    return said[1] if said else f"failed: {(done.stderr.strip().splitlines() or ['?'])[-1][:120]}"


def with_traced_steps(source: str) -> str:
    """The script with the edits that traceml asks for; one whose loop is a trainer's needs none."""
    lines = source.splitlines()
    loops = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.For) and "backward()" in ast.unparse(node)]
    if not loops:
        return source
    inner = max(loops, key=lambda loop: loop.lineno)
    first, last = inner.body[0].lineno - 1, inner.end_lineno or inner.body[-1].lineno
    margin = " " * inner.body[0].col_offset
    body = ["    " + line if line.strip() else line for line in lines[first:last]]
    lines[first:last] = [f"{margin}with traceml.trace_step(model):", *body]
    after_imports = max(node.end_lineno or 0 for node in ast.parse(source).body if isinstance(node, ast.Import | ast.ImportFrom))
    lines.insert(after_imports, 'import traceml_ai as traceml\ntraceml.init(mode="auto")')
    return "\n".join(lines) + "\n"


def traceml(file: Path, data: Path) -> str:
    """The diagnosis in its final summary, of a copy of the script with the edits that it asks for."""
    with tempfile.TemporaryDirectory() as logs:
        script = Path(logs) / "train.py"
        script.write_text(with_traced_steps(file.read_text(encoding="utf-8")), encoding="utf-8")
        words = [str(Path(sys.executable).with_name("traceml")), "run", str(script), "--mode", "summary", "--logs-dir", logs]
        environment = {**os.environ, "PYTHONPATH": str(file.parent)}
        typed = [*words, "--args", "--data", str(data)]
        done = subprocess.run(typed, capture_output=True, text=True, cwd=data, env=environment)
        summaries = sorted(Path(logs).rglob("final_summary.json"))
        if not summaries:
            return f"no summary: {(done.stderr.strip().splitlines() or ['?'])[-1][:120]}"
        return traceml_verdict(json.loads(summaries[0].read_text(encoding="utf-8")))


def traceml_verdict(summary: dict[str, Any]) -> str:
    """Every diagnosis named anywhere in its summary, in order, without repeats."""
    found: list[str] = []

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            if "diagnosis" in value and isinstance(value["diagnosis"], dict):
                found.append(str(value["diagnosis"].get("status") or value["diagnosis"].get("kind")))
            for inner in value.values():
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    walk(summary)
    return ", ".join(dict.fromkeys(found)) or "nothing"


def show(row: Row) -> None:
    verdict = ("accused" if row.found else "left alone") if row.healthy else ("right" if row.right else "WRONG")
    verdict += "" if row.healthy or row.right_line else ", line WRONG"
    seconds = " ".join(f"{way} {took:.2f} s" for way, took in row.seconds.items())
    recovered = f"{row.recovered_share:.0%}" if row.recovered_share is not None else "-"
    promised = f"promised {row.promised:.1f}× came true {row.came_true:.1f}×" if row.promised and row.came_true else ""
    named = ", ".join(f"{found['code']} ({_place(found)})" for found in row.found[:3])
    print(f"{row.name:<24}{verdict:<11} head-room {row.headroom_share:4.0%}  recovered {recovered:>5}  {promised}  {seconds}")
    print(f"{'':<24}found: {named or '-'}", flush=True)
    for tool, said in row.others.items():
        print(f"{'':<24}{tool}: {said}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("bench-out"), help="where the data goes")
    parser.add_argument("--set", nargs="*", choices=sorted(SETS), default=list(SETS), help="these sets alone")
    parser.add_argument("--only", nargs="*", default=[], help="these scripts alone")
    parser.add_argument("--passes", type=int, default=1, help="how often each script runs; medians are shown")
    parser.add_argument("--overhead", action="store_true", help="only what watching costs")
    parser.add_argument("--made", action="store_true", help="the data is there already")
    parser.add_argument("--others", action="store_true", help="ask torch.profiler and traceml as well (planted scripts)")
    typed = parser.parse_args()
    data = (typed.folder / "chokes").resolve()
    if not typed.made:
        for name in typed.set:
            (data / name).mkdir(parents=True, exist_ok=True)
            options = ["--to", str(data / name)] if name == "planted" else []
            subprocess.run([sys.executable, str(SETS[name] / "make_data.py"), *options], check=True, cwd=data / name)
    scripts = [script for name in typed.set for script in scripts_of(name, typed.only, data)]
    if typed.overhead:
        measure_overhead(scripts, data, typed.passes)
        return
    rows = []
    for script in scripts:
        rows.append(look_at(script, data, passes=typed.passes, others=typed.others and script.set == "planted"))
        show(rows[-1])
    for name in typed.set:
        summarise(name, [row for row in rows if row.set == name])


def summarise(name: str, rows: Sequence[Row]) -> None:
    choked, healthy = [row for row in rows if not row.healthy], [row for row in rows if row.healthy]
    recovered = [row.recovered_share for row in choked if row.recovered_share is not None]
    off = [row.off_by for row in choked if row.off_by is not None]
    shown = {row.name: {**asdict(row), "promised": row.promised, "came_true": row.came_true} for row in rows}
    for row in shown.values():
        row["found"] = [{"code": found["code"], "place": _place(found)} for found in row["found"][:3]]
    say(
        f"chokes-{name}",
        choked=len(choked),
        named_first=sum(row.right for row in choked),
        line_right=sum(row.right_line for row in choked),
        recovered_enough=sum(share >= ENOUGH for share in recovered),
        promises=len(off),
        promises_near=sum(factor <= NEAR for factor in off),
        off_by_median=statistics.median(off) if off else None,
        off_by_worst=max(off, default=None),
        healthy=len(healthy),
        healthy_accused=[row.name for row in healthy if row.found],
        rows=shown,
    )


if __name__ == "__main__":
    main()
