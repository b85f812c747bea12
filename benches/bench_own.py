"""Runs of ours that were told to do something slow: is it named first, and what does the command that is suggested bring?

Each row is a run with one setting that chokes it. The first finding of its record is compared with what was planted, its command
is run in a workspace of its own, and the gain that was expected is compared with the one that came.

    python benches/bench_own.py bench-out          # about 15 minutes on two cores
"""

from __future__ import annotations

import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import say, unchoke, work_folder
from photos import crops

NETWORK = ("--cut", "none", "--input-px", "64", "--epochs", "4", "--batch-norm", "frozen")


@dataclass(frozen=True)
class Planted:
    """A run and the code of what holds it back; no code for a run that nothing does."""

    code: str
    words: tuple[str, ...]


def planted(photos: Path) -> list[Planted]:
    train = ("train", str(photos), *NETWORK)
    return [
        Planted("decoded-every-epoch", (*train, "--cache", "none")),
        Planted("slow-engine", ("fit", str(photos), "--engine", "torch")),
        Planted("", (*train,)),
        Planted("", ("fit", str(photos))),
    ]


def run(words: list[str], workspace: Path) -> tuple[dict[str, Any], float]:
    """The result, and the seconds of all its stages."""
    shutil.rmtree(workspace, ignore_errors=True)
    result, _ = unchoke(*words, "--out", str(workspace))
    return result, sum(result["timings"].values())


def without_out(command: str) -> list[str]:
    words = shlex.split(command)[1:]
    place = words.index("--out")
    return words[:place] + words[place + 2 :]


def main() -> None:
    work = work_folder()
    photos = crops(work, count=600, side_px=1024)
    rows = []
    for one in planted(photos):
        result, before_s = run(list(one.words), work / "own")
        warned = [found for found in result["chokes"] if found["severity"] == "warning"]
        row: dict[str, Any] = {"planted": one.code, "named": [found["code"] for found in warned], "before_s": before_s}
        if one.code and warned and warned[0]["code"] == one.code:
            _, after_s = run(without_out(warned[0]["command"]), work / "own-after")
            row |= {"after_s": after_s, "expected_s": warned[0]["evidence"]["saved_s"], "gained_s": before_s - after_s}
        rows.append(row)
        print(row, flush=True)
    choked, healthy = [row for row in rows if row["planted"]], [row for row in rows if not row["planted"]]
    named = sum(row["named"][:1] == [row["planted"]] for row in choked)
    say("own", choked=len(choked), named_first=named, healthy_accused=sum(bool(row["named"]) for row in healthy), rows=rows)


if __name__ == "__main__":
    main()
