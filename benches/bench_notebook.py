"""What `unchoke notebook --run` says of a notebook whose 3rd of 6 cells is slow and whose 5th eats memory, beside a plain run.

The plain run executes the same cells one after the other in one Python process, each between two readings of the clock; the two
alternate. Reported: the seconds of every cell both ways, the largest difference of a cell that takes at least half a second,
whether the slow and the hungry cell are named and no other, and whether the notebook's file is the same bytes as before.

Usage: python benches/bench_notebook.py [FOLDER] [--pairs 5]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import say

CELLS = [
    "import hashlib, math, time\nNAMES = [f'leaf_{number:05d}.jpg' for number in range(20_000)]",
    "labels = {name: hashlib.md5(name.encode()).hexdigest()[:2] for name in NAMES}\nlen(set(labels.values()))",
    "def score(name, rounds):\n    return sum(math.sqrt(number * ord(name[-5])) for number in range(rounds))\n\n"
    "scores = []\nfor name in NAMES[:300]:\n    scores.append(score(name, 60_000))\nmax(scores)",
    "time.sleep(0.6)\nmean = sum(scores) / len(scores)\nprint(f'{mean:.1f}')",
    "pictures = [bytearray(b'\\x7f' * 3_000_000) for _ in range(200)]\nsum(map(len, pictures))",
    "first = bytes(pictures[0][:64])\nhashlib.sha256(first).hexdigest()",
]
PLAIN = """
import json, sys, time
cells = json.load(open(sys.argv[1]))["cells"]
names, seconds = {}, []
for cell in cells:
    code = compile("".join(cell["source"]), "cell", "exec")
    began = time.perf_counter()
    exec(code, names)
    seconds.append(time.perf_counter() - began)
print(json.dumps(seconds), file=sys.stderr)
"""
SLOW, HUNGRY = 3, 5
COUNTS_FROM_S = 0.5


def write_notebook(path: Path) -> None:
    """The six cells as a notebook of format 4."""
    cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": text} for text in CELLS]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    book = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(book, indent=1))


def run_plain(path: Path) -> list[float]:
    done = subprocess.run([sys.executable, "-c", PLAIN, str(path)], capture_output=True, text=True, check=True)
    seconds: list[float] = json.loads(done.stderr.strip().splitlines()[-1])
    return seconds


def run_measured(path: Path, folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "unchoke", "notebook", str(path), "--run", "--json", "--out", str(folder / "out")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])["result"]
    return result


def named(result: dict[str, Any], word: str) -> list[int]:
    """The cells that a sentence with this word stands out for."""
    return [
        cell["cell"] for cell in result["cells"] if any(f"cell {cell['cell']} " in h and word in h for h in result["highlights"])
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--pairs", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = asked.folder or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "six_cells.ipynb"
        write_notebook(path)
        before = hashlib.sha256(path.read_bytes()).hexdigest()
        plain, results = [], []
        for _ in range(asked.pairs):
            plain.append(run_plain(path))
            results.append(run_measured(path, folder))
        untouched = hashlib.sha256(path.read_bytes()).hexdigest() == before
    measured = [[cell["run"]["wall_s"] for cell in result["cells"]] for result in results]
    plain_s = [statistics.median(seconds) for seconds in zip(*plain, strict=True)]
    measured_s = [statistics.median(seconds) for seconds in zip(*measured, strict=True)]
    far = {
        number: abs(ours - theirs) / theirs
        for number, (ours, theirs) in enumerate(zip(measured_s, plain_s, strict=True), start=1)
        if theirs >= COUNTS_FROM_S
    }
    total = abs(sum(measured_s) - sum(plain_s)) / sum(plain_s)
    right = all(named(result, " of the run's ") == [SLOW] and named(result, " of memory ") == [HUNGRY] for result in results)
    say(
        "notebook",
        pairs=asked.pairs,
        plain_s=[round(seconds, 4) for seconds in plain_s],
        measured_s=[round(seconds, 4) for seconds in measured_s],
        largest_difference_share=round(max(far.values()), 4),
        total_difference_share=round(total, 4),
        named_right=right,
        untouched=untouched,
        highlights=results[-1]["highlights"],
        peaks_mb=[round((cell["run"]["peak_rss_bytes"] or 0) / 1e6) for cell in results[-1]["cells"]],
    )
    if max(far.values()) > 0.10 or total > 0.10 or not right or not untouched:
        raise SystemExit("the bar was missed")


if __name__ == "__main__":
    main()
