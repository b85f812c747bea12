"""A process that appends decisions and is killed: every decision it said was written is there, and no line is torn."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

from unchoke.data.corrections import load_corrections

NUM_KILLS = 3
DRIVER = """
import sys
from pathlib import Path
from unchoke.data.corrections import Correction, append_corrections
file, first = Path(sys.argv[1]), int(sys.argv[2])
for number in range(first, first + 100_000):
    append_corrections(file, [Correction(f"cats/{number}.jpg", "label", "dog " * 50, "ada")])
    print(number, flush=True)
"""


def test_decisions_survive_a_kill(tmp_path: Path) -> None:
    file, said, draw = tmp_path / "corrections.csv", 0, random.Random(3)
    for _ in range(NUM_KILLS):
        driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(file), str(said)], stdout=subprocess.PIPE, text=True)
        assert driver.stdout is not None
        first = driver.stdout.readline()
        assert first.strip(), "the driver wrote something"
        time.sleep(draw.uniform(0, 0.3))
        driver.kill()
        rest = [line for line in driver.stdout.read().split("\n")[:-1] if line]
        driver.wait()
        said = int((rest or [first.strip()])[-1]) + 1
        lines = load_corrections(file).lines
        assert [line.photo for line in lines[:said]] == [f"cats/{number}.jpg" for number in range(said)]
        assert len(lines) in (said, said + 1), "one may be on the disk that was not said yet"
        assert all(line.value == "dog " * 50 for line in lines)
        said = len(lines)
