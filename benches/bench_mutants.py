"""Would the tests notice? Breaks one line of the source at a time and counts the breaks that some test fails on.

`make` draws mutants at random and writes them as JSON; `run` tries each in a scratch copy of a checkout. First one run of the
suite notes which tests execute each of the lines; then each mutant meets those tests alone, those of its own room first, until
one fails.

    python benches/bench_mutants.py make --num 20 --seed 1 mutants.json
    python benches/bench_mutants.py run mutants.json [--repo CHECKOUT] [--all]     # --all: campaigns too, as `make test-all`
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("training", "jobs", "features", "scenes", "masks", "cli")
OPPOSITE = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
PER_RUN = 40
"""Tests that one pytest gets at a time: a mutant usually falls among the first."""


@dataclass(frozen=True)
class Mutant:
    """One statement that is written another way; `before` and `after` are its whole lines."""

    file: str
    line: int
    before: str
    after: str


def draw(num: int, seed: int) -> list[Mutant]:
    """As many mutants from every room, each in another file."""
    rng, found = random.Random(seed), []
    for number in range(num):
        files = sorted((ROOT / "src" / "unchoke" / ROOMS[number % len(ROOMS)]).rglob("*.py"))
        rng.shuffle(files)
        taken = {one.file for one in found}
        ways = (list(mutations(file)) for file in files if str(file.relative_to(ROOT)) not in taken)
        found.append(rng.choice(next(way for way in ways if way)))
    return found


def mutations(file: Path) -> Iterator[Mutant]:
    """Every way to break a statement of one line inside a function: an operator turned round, a number or a flag changed."""
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    inner = [node for outer in ast.walk(ast.parse(text)) if isinstance(outer, ast.FunctionDef) for node in ast.walk(outer)]
    kinds = ast.Assign | ast.Return | ast.Expr | ast.If | ast.AugAssign
    for statement in dict.fromkeys(node for node in inner if isinstance(node, kinds)):
        first = statement.test if isinstance(statement, ast.If) else statement
        line = lines[first.lineno - 1]
        if first.lineno != first.end_lineno or lines.count(line) > 1 or "raise" in line or '"' in line:
            continue
        for node in ast.walk(first):
            if changed := _changed(node):
                code = line.encode()
                start, end = node.col_offset, node.end_col_offset
                after = (code[:start] + changed.encode() + code[end:]).decode()
                yield Mutant(str(file.relative_to(ROOT)), first.lineno, line, after)


def _changed(node: ast.AST) -> str | None:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return ast.unparse(ast.Compare(node.left, [OPPOSITE[type(node.ops[0])]()], node.comparators))
    if isinstance(node, ast.BinOp) and type(node.op) in OPPOSITE:
        return f"({ast.unparse(ast.BinOp(node.left, OPPOSITE[type(node.op)](), node.right))})"
    if isinstance(node, ast.BoolOp):
        return f"({ast.unparse(ast.BoolOp(OPPOSITE[type(node.op)](), node.values))})"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return ast.unparse(node.operand)
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return str(not node.value if isinstance(node.value, bool) else node.value + 1)
    return None


class Scratch:
    """A copy of a checkout with an environment of its own that finds the packages of the checkout's, and the copy's source."""

    def __init__(self, repo: Path, folder: Path, marks: str) -> None:
        self.root, self._marks = folder / "copy", marks
        names = subprocess.run(["git", "ls-files", "-z"], cwd=repo, capture_output=True, check=True).stdout.decode().split("\0")
        for name in filter(None, names):
            if (repo / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(repo / name, self.root / name)
        subprocess.run(["git", "init", "-q", str(self.root)], check=True)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(self.root / ".venv")], check=True)
        (packages,) = (self.root / ".venv").glob("lib/python*/site-packages")
        (theirs,) = (repo / ".venv").glob("lib/python*/site-packages")
        (packages / "scratch.pth").write_text(f"{self.root / 'src'}\n{theirs}\n")
        for script in ("unchoke", "pytest"):
            module = "unchoke" if script == "unchoke" else "pytest"
            file = self.root / ".venv" / "bin" / script
            file.write_text(f"#!{self.root}/.venv/bin/python\nimport runpy\nrunpy.run_module('{module}', run_name='__main__')\n")
            file.chmod(0o755)

    def write(self, mutant: Mutant, text: str) -> None:
        """Put `text` where the mutant's line stands; the line may have moved since it was drawn."""
        file = self.root / mutant.file
        lines = file.read_text(encoding="utf-8").split("\n")
        lines[lines.index(mutant.before)] = text
        file.write_text("\n".join(lines), encoding="utf-8")

    def pytest(self, *words: str, limit_s: float) -> int:
        """Its exit code; a mutant that hangs has been noticed too."""
        command = [str(self.root / ".venv/bin/python"), "-m", "pytest", "-q", "-m", self._marks, "-p", "no:cacheprovider", *words]
        with subprocess.Popen(
            command, cwd=self.root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        ) as run:
            try:
                return run.wait(limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(run.pid, 9)
                return 1


def mark_reached(scratch: Scratch, mutants: list[Mutant], processes: int) -> list[list[str]]:
    """The tests that execute each mutant's line, in one run of the suite with every such line noting who is there."""
    notes = scratch.root / "reached"
    notes.mkdir()
    for number, mutant in enumerate(mutants):
        code, indent = mutant.before.lstrip(), mutant.before[: len(mutant.before) - len(mutant.before.lstrip())]
        who = "__import__('os').environ.get('PYTEST_CURRENT_TEST', '?') + chr(10)"
        note = f"__import__('builtins').open({str(notes / str(number))!r}, 'a').write({who})"
        if code.startswith("elif "):
            text = f"{indent}elif {note} and ({code[5:].rstrip(':')}):"
        else:
            text = f"{indent}{note}\n{mutant.before}"
        scratch.write(mutant, text)
    scratch.pytest("-n", str(processes), "--dist", "worksteal", limit_s=7200)
    reached = []
    for number, mutant in enumerate(mutants):
        file = notes / str(number)
        tests = dict.fromkeys(line.rpartition(" (")[0] for line in file.read_text().splitlines()) if file.exists() else {}
        room = Path(mutant.file).parts[2]
        reached.append(sorted((test for test in tests if test), key=lambda test: f"/{room}/" not in test))
    return reached


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "run"))
    parser.add_argument("mutants", type=Path)
    parser.add_argument("--num", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repo", type=Path, default=ROOT)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    if asked.what == "make":
        asked.mutants.write_text(json.dumps([asdict(one) for one in draw(asked.num, asked.seed)], indent=1, ensure_ascii=False))
        return
    mutants = [Mutant(**one) for one in json.loads(asked.mutants.read_text())]
    marks = "" if asked.all else "not campaign"
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        marked = Scratch(asked.repo.resolve(), Path(folder) / "marked", marks)
        reached = mark_reached(marked, mutants, asked.processes)
        scratch = Scratch(asked.repo.resolve(), Path(folder) / "mutated", marks)
        killed = 0
        for mutant, tests in zip(mutants, reached, strict=True):
            scratch.write(mutant, mutant.after)
            parts = [tests[start : start + PER_RUN] for start in range(0, len(tests), PER_RUN)]
            found = any(scratch.pytest("-x", "-n", "0", *part, limit_s=600) not in (0, 5) for part in parts)
            scratch.write(Mutant(mutant.file, mutant.line, mutant.after, mutant.before), mutant.before)
            killed += found
            row = {**asdict(mutant), "tests": len(tests), "killed": found}
            print(json.dumps(row, ensure_ascii=False), flush=True)
        print(json.dumps({"killed": killed, "of": len(mutants)}))


if __name__ == "__main__":
    main()
