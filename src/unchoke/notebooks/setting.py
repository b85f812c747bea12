"""What holds for a whole notebook: its task and its data, whether part of its network is frozen, its epochs.

In comes a program as lint reads it, out goes a `NotebookContext`, from which verdicts fill in the commands they name. Nothing is
opened: a folder is taken as the notebook writes it, and where it writes none there is no command.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from unchoke.code.magics import script_runs
from unchoke.code.program import Program
from unchoke.notebooks.tasks import NotebookTask, read_task

_ON_TORCH = {"torch", "torchvision", "timm", "fastai", "fastbook", "lightning", "pytorch_lightning", "transformers", "monai"}
_THAWED = re.compile(r"trainable\s*=\s*True|requires_grad_?\s*(?:=\s*True|\(True\))|unfreeze")
_RESUMES = re.compile(r"latest_checkpoint|BackupAndRestore|resume|start_epoch|ckpt_path\s*=|initial_epoch")
_EPOCH = re.compile(r"^(ep|epoch|epochs|e)$|epoch", re.IGNORECASE)


@dataclass(frozen=True)
class NotebookContext:
    """`resumes`: training goes on from a checkpoint. `epochs`: how many, by cell that trains; None where that cannot be told."""

    notebook: str
    task: NotebookTask = field(default_factory=NotebookTask)
    frozen: bool = False
    resumes: bool = False
    torch: bool = True
    epochs: Mapping[int, int | None] = field(default_factory=dict)

    @property
    def fit(self) -> str:
        """The command that does the notebook's training in resumable parts; empty where there is none for its task or data."""
        if self.task.task == "masks":
            return f"unchoke segment train {self.task.data}" if self.task.data else ""
        return self.on_photos("fit", "" if self.frozen else " --cut none")

    def on_photos(self, word: str, option: str = "") -> str:
        """`unchoke WORD` on the notebook's own pictures; empty where they are none that it could read."""
        known = self.task.data and self.task.task in ("classes", "numbers")
        return f"unchoke {word} {self.task.data}{self.task.options}{option}" if known else ""

    @property
    def profile(self) -> str:
        """How to look into the steps of a cell that is slow for no reason the source shows; steps of torch alone are seen."""
        return "" if not self.torch else f"unchoke profile -- jupyter execute {shlex.quote(self.notebook)}"


def read_setting(program: Program, notebook: str) -> NotebookContext:
    """What the notebook as a whole tells, with the scripts that its cells write or run."""
    programs = {script.name: Program(script) for script in (*program.source.beside, *program.source.scripts)}
    every = [program, *programs.values()]
    texts = [cell.python for one in every for cell in one.source.cells if cell.executed]
    frozen = any(one.facts.frozen for one in every) and not any(map(_THAWED.search, texts))
    torch = any(name.split(".")[0] in _ON_TORCH for one in every for name in one.modules)
    tasks = [read_task(one, notebook) for one in every]
    task = next((found for found in tasks if found.task or found.other), tasks[0])
    epochs = {**_epochs(program), **dict(_epochs_of_runs(program, programs))}
    return NotebookContext(notebook, task, frozen, any(map(_RESUMES.search, texts)), torch, epochs)


def _epochs_of_runs(program: Program, scripts: Mapping[str, Program]) -> Iterator[tuple[int, int | None]]:
    """The epochs of a script, for the cells that run it."""
    for cell in program.source.cells:
        for run in script_runs(cell.text, cell.language) if cell.kind == "code" and cell.number is not None else ():
            if run.name in scripts:
                known = [value for value in _epochs(scripts[run.name]).values() if value is not None]
                yield cell.number or 0, max(known, default=None)


def _epochs(program: Program) -> dict[int, int | None]:
    """By cell: the most epochs that a fit or an epoch loop in it states."""
    found: dict[int, int | None] = {}
    stated: list[tuple[ast.AST, Any]] = [(fit.call, fit.num_epochs) for fit in program.facts.fits]
    stated += [(loop.epochs or loop.node, loop.num_epochs) for loop in program.facts.training_loops]
    stated += [
        (loop, _range(program, loop))
        for loop in program.nodes(ast.For)
        if any(isinstance(part, ast.Name) and _EPOCH.search(part.id) for part in ast.walk(loop.target))
    ]
    for node, epochs in stated:
        number = program.cell(node).number
        if number is not None:
            known = [int(value) for value in (found.get(number), epochs) if isinstance(value, int | float)]
            found[number] = max(known, default=None)
    return found


def _range(program: Program, loop: ast.For) -> int | None:
    """N of `range(N)` or `range(a, N)`, also inside `tqdm(...)`."""
    ranges = [part for part in ast.walk(loop.iter) if isinstance(part, ast.Call) and program.name(part) == "range" and part.args]
    ends = [program.value(call.args[1 if len(call.args) > 1 else 0]) for call in ranges]
    return next((end for end in ends if isinstance(end, int)), None)
