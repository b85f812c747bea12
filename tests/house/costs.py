"""What the tests cost: `python tests/house/costs.py COSTS` prints the slowest files, as tests/slowest.txt keeps them.

COSTS is what `pytest --costs COSTS` wrote. With `--table` it prints files, tests, seconds of CPU and of the clock, and shares.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

SHOWN = 80


def by_file(costs: dict[str, list[float]]) -> list[tuple[str, int, float, float]]:
    """Files with their number of tests and their seconds of CPU and of the clock, the slowest first."""
    files: dict[str, list[list[float]]] = {}
    for test, cost in costs.items():
        files.setdefault(test.partition("::")[0], []).append(cost)
    rows = [(file, len(found), sum(one[0] for one in found), sum(one[1] for one in found)) for file, found in files.items()]
    return sorted(rows, key=lambda row: -row[3])


def main() -> None:
    rows = by_file(json.loads(Path(sys.argv[-1]).read_text(encoding="utf-8")))
    if "--table" not in sys.argv:
        print("\n".join(row[0] for row in rows[:SHOWN]))
        return
    whole = sum(row[2] for row in rows)
    print("| file | tests | CPU s | clock s | share of CPU |\n|---|--:|--:|--:|--:|")
    for file, num, cpu_s, clock_s in rows[:SHOWN]:
        print(f"| {file.removeprefix('tests/')} | {num} | {cpu_s:.1f} | {clock_s:.1f} | {cpu_s / whole:.1%} |")
    print(f"| all {len(rows)} | {sum(row[1] for row in rows)} | {whole:.0f} | {sum(row[3] for row in rows):.0f} | |")


if __name__ == "__main__":
    main()
