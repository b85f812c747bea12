"""Compares what `lint --run` says of ten notebooks with what repairs save: python benches/bench_notebook.py OUT.json [n01 …]

`benches/run/expected.json` names the causes planted in each notebook, with the edits that remove one of them. For each notebook:
`lint NB --run --json` and `notebook NB --run --steps 20 --json` in a folder with the data, then the notebook and its repaired
twins, by turns, as plain Python, each with a clock around the cells where the cause is at work (from the first optimizer step on,
except where the repair is work before it: `whole`). `saved` is 1 - twin / notebook (medians). A confirmed share must be within 10
points of it; a finding that was refuted must save less than 10 %. Edits under `here` let a notebook run without Colab, CUDA or
downloads. Where others work on the same cores, OMP_NUM_THREADS=1 keeps torch's threads from spinning against them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "run"
TIMED = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
cells, plan, spent, first = json.load(open(sys.argv[1]))["cells"], json.loads(sys.argv[2]), 0.0, []
hooked = False
for number, cell in enumerate(cells, 1):
    if cell["cell_type"] == "code":
        text = "".join("" if line.startswith(("%", "!")) else line for line in cell["source"])
        if number in plan["timed"] and not hooked and not plan.get("whole") and "torch" in sys.modules:
            from torch.optim.optimizer import register_optimizer_step_post_hook
            register_optimizer_step_post_hook(lambda *_: first or first.append(time.perf_counter()))
            hooked = True
        began = time.perf_counter()
        exec(compile(text, f"cell {number}", "exec"))
        spent += (time.perf_counter() - (first[0] if first else began)) * (number in plan["timed"])
print(json.dumps(spent), file=sys.stderr)
"""


def read_notebook(name: str, folder: Path) -> dict[str, Any]:
    """The notebook; where torchvision was built for another torch, with the import that mends it, on the same line."""
    book: dict[str, Any] = json.loads((HERE / f"{name}.ipynb").read_text())
    mend = HERE.parent / "newcomers" / "tv_compat.py"
    if subprocess.run([sys.executable, "-c", "import torchvision"], capture_output=True).returncode:
        shutil.copy(mend, folder)
        for cell in book["cells"]:
            imports = [at for at, line in enumerate(cell["source"]) if re.match(r"(import|from) (torchvision|timm)", line)]
            if imports:
                cell["source"][imports[0]] = f"import {mend.stem}; {cell['source'][imports[0]]}"
                break
    return book


def edited(book: dict[str, Any], edits: list[list[str]]) -> dict[str, Any]:
    texts = ["".join(cell["source"]) + "\n" for cell in book["cells"]]
    for old, new in edits:
        if not any(old in text for text in texts):
            raise SystemExit(f"not in the notebook: {old!r}")
        texts = [text.replace(old, new) for text in texts]
    cells = [{**cell, "source": text.splitlines(keepends=True)} for cell, text in zip(book["cells"], texts, strict=True)]
    return {**book, "cells": cells}


def seconds(path: Path, plan: dict[str, Any]) -> float:
    done = subprocess.run(
        [sys.executable, "-c", TIMED, path.name, json.dumps(plan)], cwd=path.parent, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{path.name}: {done.stderr[-2000:]}")
    return float(done.stderr.strip().splitlines()[-1])


def doctor(folder: Path, *words: str) -> dict[str, Any]:
    path = os.pathsep.join([str(HERE.parents[1] / "src"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "unchoke_doctor", *words, "--json"]
    done = subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    said: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    result: dict[str, Any] = said.get("result", said)
    return result


def verdict(finding: dict[str, Any] | None, saved: float) -> str:
    """Whether what the run said holds against the repair."""
    if finding is None:
        return "not found" if saved >= 0.10 else "ok (nothing said)"
    share = finding["evidence"].get("share")
    if finding["status"] == "confirmed" and share is not None:
        return "ok" if abs(share - saved) <= 0.10 else "OFF"
    return (
        "WRONG"
        if finding["status"] == "refuted" and saved >= 0.10
        else "ok"
        if finding["status"] == "refuted"
        else finding["status"]
    )


def match(findings: list[dict[str, Any]], cause: dict[str, Any]) -> dict[str, Any] | None:
    """The finding of one of the cause's names: near its line, else wherever it is."""

    def far(one: dict[str, Any]) -> tuple[bool, int]:
        return one["cell"] != cause["cell"], abs((one["line"] or 0) - cause["line"])

    return min((one for one in findings if one["code"] in cause["codes"]), key=far, default=None)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("only", nargs="*")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--data", type=Path, help="a folder that make_data.py filled; made anew without it")
    parser.add_argument("--saved", type=Path, help="an earlier OUT.json: its seconds are used instead of timing again")
    asked = parser.parse_args()
    expected = json.loads((HERE / "expected.json").read_text())
    earlier = json.loads(asked.saved.read_text())["notebooks"] if asked.saved else {}
    rows: list[dict[str, Any]] = []
    result: dict[str, Any] = {"notebooks": {}, "rows": rows}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        if asked.data:
            shutil.copytree(asked.data / "data", folder / "data")
        else:
            subprocess.run([sys.executable, HERE / "make_data.py", folder], check=True)
        for name in asked.only or expected:
            plan, book = expected[name], read_notebook(name, folder)
            (folder / f"{name}.ipynb").write_text(json.dumps(book))
            before = sorted(path.name for path in folder.iterdir())
            linted = doctor(folder, "lint", f"{name}.ipynb", "--run")
            if sorted(path.name for path in folder.iterdir()) != before:
                print(f"{name}: the run left files behind")
            twins = [edited(book, [*cause["twin"], *plan["here"]]) for cause in plan["causes"]]
            times = earlier.get(name, {}).get("seconds") or measure(
                folder, [edited(book, plan["here"]), *twins], plan, asked.turns
            )
            shown = doctor(folder, "notebook", f"{name}.ipynb", "--run", "--steps", "20")
            result["notebooks"][name] = {
                "seconds": times,
                "findings": linted["findings"],
                "table": shown["cells"],
                "notes": shown["notes"],
            }
            whole, unmatched = statistics.median(times[0]), list(linted["findings"])
            for cause, spent in zip(plan["causes"], times[1:], strict=True):
                saved = 1 - statistics.median(spent) / whole
                finding = match(unmatched, cause)
                unmatched = [one for one in unmatched if one is not finding]
                said = {key: finding[key] if finding else None for key in ("code", "status", "cell", "line")}
                evidence = finding["evidence"] if finding else {}
                row = {"notebook": name, "planted": cause["codes"][0], "saved": round(saved, 3), **said}
                row |= {"share": evidence.get("share"), "run": evidence.get("run"), "verdict": verdict(finding, saved)}
                rows.append(row)
                print(show(rows[-1]), flush=True)
            for one in unmatched:
                words = f"{one['code']} {one['status']}  {one['evidence'].get('run')}"
                print(f"{name}  cell {one['cell']}:{one['line']}  also: {words}", flush=True)
    asked.out.write_text(json.dumps(result, indent=1))
    wrong = [row for row in rows if row["verdict"] in ("OFF", "WRONG")]
    print(f"{len(rows)} causes, {len(wrong)} shares or refusals off")
    raise SystemExit(bool(wrong))


def measure(folder: Path, books: list[dict[str, Any]], plan: dict[str, Any], turns: int) -> list[list[float]]:
    """Seconds of the timed cells of each, by turns."""
    path = folder / "timed.ipynb"
    times: list[list[float]] = [[] for _ in books]
    for _ in range(turns):
        for book, spent in zip(books, times, strict=True):
            path.write_text(json.dumps(book))
            spent.append(round(seconds(path, plan), 2))
    path.unlink()
    return times


def show(row: dict[str, Any]) -> str:
    share = "" if row["share"] is None else f"{row['share']:.0%}"
    place = f"{row['notebook']}  cell {row['cell']}:{row['line'] or '-'}"
    said = f"{row['status'] or '-':<12} said {share:>4}  saved {row['saved']:>4.0%}"
    return f"{place:<16} {row['planted']:<19} {said}  {row['verdict']}"


if __name__ == "__main__":
    main()
