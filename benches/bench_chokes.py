"""The planted chokes: is the right cause named first, does the first suggestion help, and what do other tools say?

Each folder of `chokes/` holds a training script with one known choke, its repaired twin (the difference is the head-room), and
`followed.py`: the script after the one edit that the first finding asks for. `expected.toml` says what is planted; it and the
scripts are older than the diagnosis. Scripts run as they are, one at a time, in processes of their own.

    python benches/bench_chokes.py bench-out                 # the table, about 20 minutes
    python benches/bench_chokes.py bench-out --only stat_storm png_decode
    OMP_NUM_THREADS=1 python benches/bench_chokes.py bench-out --overhead --passes 5   # only what watching costs, by turns
    python benches/bench_chokes.py bench-out --others        # also torch.profiler alone, and traceml (pip install traceml-ai)

`traceml` asks for two edits in a plain loop (a call at the top, the step in a `with`): it gets a copy of the script with them.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from common import say

CHOKES = Path(__file__).with_name("chokes")
ENOUGH = 0.7
"""The share of the head-room that following the first suggestion should recover."""
ENOUGH_ROOM = 0.05
"""What watching may cost."""
TRAINED = re.compile(r"^trained (\d+) samples in ([\d.]+) s$", re.MULTILINE)
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


@dataclass
class Row:
    """What became of one script. Shares are of the plain run's training time."""

    name: str
    cause: str
    lines: list[int] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    found: list[dict[str, Any]] = field(default_factory=list)
    overhead_share: float | None = None
    others: dict[str, str] = field(default_factory=dict)

    @property
    def healthy(self) -> bool:
        return self.cause == ""

    @property
    def first(self) -> str:
        return str(self.found[0]["code"]) if self.found else ""

    @property
    def right(self) -> bool:
        return self.first == self.cause

    @property
    def right_line(self) -> bool:
        """Whether the first finding points at one of the lines where the choke stands."""
        return self.right and bool(self.found) and self.found[0]["line"] in self.lines

    @property
    def headroom_share(self) -> float:
        return 1 - self.seconds["repaired"] / self.seconds["train"] if "repaired" in self.seconds else 0.0

    @property
    def recovered_share(self) -> float | None:
        """How much of the head-room the first suggestion recovered; None where the first finding names another cause."""
        if "followed" not in self.seconds or not self.right:
            return None
        return (self.seconds["train"] - self.seconds["followed"]) / (self.seconds["train"] - self.seconds["repaired"])


def run_script(file: Path, data: Path) -> float:
    """Seconds of training, as the script itself says."""
    done = subprocess.run([sys.executable, str(file), "--data", str(data)], capture_output=True, text=True, cwd=data)
    return trained_s(done.stdout, done.stderr, file)


def trained_s(stdout: str, stderr: str, file: Path) -> float:
    said = TRAINED.search(stdout)
    if said is None:
        raise SystemExit(f"{file} did not say how long it trained\n{stdout[-1000:]}\n{stderr[-2000:]}")
    return float(said[2])


def profiled(file: Path, data: Path, *options: str) -> tuple[list[dict[str, Any]], float]:
    """What `unchoke profile` finds, and the seconds of training under it."""
    with tempfile.TemporaryDirectory() as out:
        words = [sys.executable, "-m", "unchoke", "profile", "--json", *options, "--out", out, "--"]
        done = subprocess.run([*words, sys.executable, str(file), "--data", str(data)], capture_output=True, text=True, cwd=data)
    if done.returncode:
        raise SystemExit(f"profiling {file} exited {done.returncode}\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}")
    result = json.loads(done.stdout.strip().splitlines()[-1])["result"]
    found = [finding for finding in result["findings"] if finding["severity"] != "info"]
    return found, trained_s(done.stderr, done.stdout, file)


def look_at(name: str, planted: dict[str, Any], data: Path, *, passes: int, others: bool) -> Row:
    row = Row(name, planted.get("cause", ""), planted.get("lines", []))
    files = [file for way in ("train", "repaired", "followed") if (file := CHOKES / name / f"{way}.py").exists()]
    took: dict[str, list[float]] = {file.stem: [] for file in files}
    profiled_s = []
    for _ in range(passes):
        for file in files:
            took[file.stem].append(run_script(file, data))
        row.found, under_s = profiled(CHOKES / name / "train.py", data)
        profiled_s.append(under_s)
    row.seconds = {way: statistics.median(seconds) for way, seconds in took.items()}
    row.overhead_share = statistics.median(profiled_s) / row.seconds["train"] - 1
    if others:
        row.others = {"torch.profiler": torch_profiler(CHOKES / name / "train.py", data)}
        row.others["traceml"] = traceml(CHOKES / name / "train.py", data)
    return row


def measure_overhead(names: list[str], data: Path, passes: int) -> None:
    """Plain and watched runs by turns; the median of the ratios of neighbours, which a slow spell of the machine slows alike."""
    shares = {}
    for name in names:
        file = CHOKES / name / "train.py"
        pairs = [(run_script(file, data), profiled(file, data, "--no-replay")[1]) for _ in range(passes)]
        shares[name] = statistics.median(watched_s / plain_s for plain_s, watched_s in pairs) - 1
        took = "  ".join(f"{plain_s:.2f} → {watched_s:.2f} s" for plain_s, watched_s in pairs)
        print(f"{name:<24}{shares[name]:+6.1%}  {took}", flush=True)
    ordered = sorted(shares.values())
    under = sum(share < ENOUGH_ROOM for share in ordered)
    say(
        "chokes-overhead",
        passes=passes,
        median_share=statistics.median(ordered),
        under_5_percent=under,
        scripts=len(ordered),
        shares=shares,
    )


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
    seconds = " ".join(f"{way} {took:.2f} s" for way, took in row.seconds.items())
    recovered = f"{row.recovered_share:.0%}" if row.recovered_share is not None else "-"
    named = ", ".join(
        f"{found['code']} ({found['path'].rpartition('/')[2] if found['path'] else '?'}:{found['line']})" for found in row.found
    )
    verdict = ("accused" if row.found else "left alone") if row.healthy else ("right" if row.right else "WRONG")
    print(f"{row.name:<24}{verdict:<11}head-room {row.headroom_share:4.0%}  recovered {recovered:>5}  {seconds}")
    print(f"{'':<24}overhead {row.overhead_share:+.1%}  found: {named or '-'}", flush=True)
    for tool, said in row.others.items():
        print(f"{'':<24}{tool}: {said}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("bench-out"), help="where the data goes")
    parser.add_argument("--only", nargs="*", default=[], help="these scripts alone")
    parser.add_argument("--passes", type=int, default=1, help="how often each script runs; medians are shown")
    parser.add_argument("--overhead", action="store_true", help="only what watching costs")
    parser.add_argument("--made", action="store_true", help="the data is there already")
    parser.add_argument("--others", action="store_true", help="ask torch.profiler and traceml as well")
    typed = parser.parse_args()
    data = (typed.folder / "chokes").resolve()
    if not typed.made:
        subprocess.run([sys.executable, str(CHOKES / "make_data.py"), "--to", str(data)], check=True)
    found = tomllib.loads((CHOKES / "expected.toml").read_text(encoding="utf-8"))
    expected = {name: planted for name, planted in found.items() if name in (typed.only or found)}
    if typed.overhead:
        measure_overhead(list(expected), data, typed.passes)
        return
    rows = []
    for name, planted in expected.items():
        rows.append(look_at(name, planted, data, passes=typed.passes, others=typed.others))
        show(rows[-1])
    summarise(rows)


def summarise(rows: list[Row]) -> None:
    choked, healthy = [row for row in rows if not row.healthy], [row for row in rows if row.healthy]
    accused = [row for row in rows if row.found]
    right = sum(row.right for row in choked)
    recovered = [row.recovered_share for row in choked if row.recovered_share is not None]
    overheads = [row.overhead_share for row in rows if row.overhead_share is not None]
    say(
        "chokes",
        choked=len(choked),
        named_first=right,
        line_right=sum(row.right_line for row in choked),
        recall=right / max(1, len(choked)),
        precision=right / max(1, len(accused)),
        healthy=len(healthy),
        healthy_accused=[row.name for row in healthy if row.found],
        recovered_enough=sum(share >= ENOUGH for share in recovered),
        median_overhead_share=statistics.median(overheads) if overheads else None,
        rows=[{**asdict(row), "headroom_share": row.headroom_share, "recovered_share": row.recovered_share} for row in rows],
    )


if __name__ == "__main__":
    main()
