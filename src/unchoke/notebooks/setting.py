"""What holds for a whole notebook: the data it names, whether part of its network is frozen, whether it makes masks, its epochs.

In comes a program as lint reads it, out goes a `NotebookContext`, from which verdicts fill in the commands they name. Nothing is
opened: a folder is taken as the notebook writes it, and `DATA` stands where it writes none.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from unchoke.code.program import Program

_FOLDER = re.compile(r"(ImageFolder|image_dataset_from_directory|flow_from_directory|DataLoaders\.from_folder)$")
_FOLDER_ARGUMENTS = ("root", "directory", "path")
_PATHS = {"pathlib.Path", "pathlib.PurePath", "os.path.join", "str"}
_TABLE = re.compile(r"(pandas|polars)\.(read_csv|read_parquet)$")
_TABLE_NAME = re.compile(r"\.(csv|tsv|parquet)$", re.IGNORECASE)
_NO_DATA = re.compile(r"log|hist|submission|metric|result|pred|loss", re.IGNORECASE)
_SPLITS = {"train", "training", "val", "valid", "validation", "dev", "test", "testing"}
_HELD_BACK = re.compile(r"hold|test|val|new|predict|infer", re.IGNORECASE)
_MASKS = re.compile(r"\b(?:\w*unet\w*|\w*masks?\b|segmentation\w*|dice\w*|\w*iou\w*)", re.IGNORECASE)
_MASK_WORDS = 8
_ON_TORCH = {"torch", "torchvision", "timm", "fastai", "fastbook", "lightning", "pytorch_lightning", "transformers", "monai"}
_THAWED = re.compile(r"trainable\s*=\s*True|requires_grad_?\s*(?:=\s*True|\(True\))|unfreeze")
_RESUMES = re.compile(r"latest_checkpoint|BackupAndRestore|resume|start_epoch|ckpt_path\s*=|initial_epoch")
_FOLDER_NAME = re.compile(r"(data|root|base|imgs?|images?|photos?|train)_?(dir|root|path|folder)?|dir|folder", re.IGNORECASE)
_EPOCH = re.compile(r"^(ep|epoch|epochs|e)$|epoch", re.IGNORECASE)


@dataclass(frozen=True)
class NotebookContext:
    """`resumes`: training goes on from a checkpoint. `epochs`: how many, by cell that trains; None where that cannot be told."""

    notebook: str
    data: str = "DATA"
    frozen: bool = False
    masks: bool = False
    resumes: bool = False
    torch: bool = True
    epochs: Mapping[int, int | None] = field(default_factory=dict)

    @property
    def fit(self) -> str:
        """The command that does the notebook's training in resumable parts."""
        if self.masks:
            return f"unchoke segment train {self.data}"
        return f"unchoke fit {self.data}" + ("" if self.frozen else " --cut none")

    @property
    def profile(self) -> str:
        """How to look into the steps of a cell that is slow for no reason the source shows; steps of torch alone are seen."""
        return "" if not self.torch else f"unchoke profile -- jupyter execute {shlex.quote(self.notebook)}"


def read_setting(program: Program, notebook: str) -> NotebookContext:
    """What the notebook as a whole tells."""
    masks = sum(len(_MASKS.findall(cell.python)) for cell in program.source.cells if cell.executed) >= _MASK_WORDS
    thawed = any(_THAWED.search(cell.python) for cell in program.source.cells if cell.executed)
    resumes = any(_RESUMES.search(cell.python) for cell in program.source.cells if cell.executed)
    frozen = bool(program.facts.frozen) and not thawed
    torch = any(name.split(".")[0] in _ON_TORCH for name in program.modules)
    return NotebookContext(notebook, _data(program), frozen, masks, resumes, torch, _epochs(program))


def _data(program: Program) -> str:
    """The folder of class folders or the table that the notebook reads, as a word of a shell command."""
    names = [*_folders(program), *_tables(program), *_constants(program)]
    return shlex.quote(names[0]) if names else "DATA"


def _folders(program: Program) -> Iterator[str]:
    for call in program.nodes(ast.Call):
        if _FOLDER.search(program.name(call)):
            given = next((found for name in _FOLDER_ARGUMENTS if (found := program.argument(call, name, 0)) is not None), None)
            path = _path(program, given)
            if path is not None and str(path).strip("./"):
                if path.name.lower() in _SPLITS and len(path.parts) > 1:
                    yield str(path.parent)
                elif not _HELD_BACK.search(path.name):
                    yield str(path)


def _tables(program: Program) -> Iterator[str]:
    for call in program.nodes(ast.Call):
        if _TABLE.search(program.name(call)):
            path = _path(program, program.argument(call, "filepath_or_buffer", 0))
            if path is not None and _TABLE_NAME.search(path.name) and not _NO_DATA.search(path.name):
                yield str(path)


def _constants(program: Program) -> Iterator[str]:
    """`DATA = "photos"`, where nothing else tells."""
    for node in program.nodes(ast.Assign):
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        path = _path(program, node.value) if any(_FOLDER_NAME.fullmatch(name) for name in names) else None
        if path is not None and str(path).strip("./") and not path.suffix:
            yield str(path)


def _path(program: Program, node: ast.AST | None, depth: int = 8) -> PurePath | None:
    """A path that is written out, through constants, `Path(…)`, `/` and `os.path.join`; None if part of it is not."""
    if node is None or not depth:
        return None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return _joined([_path(program, side, depth - 1) for side in (node.left, node.right)])
    if isinstance(node, ast.Call) and program.name(node) in _PATHS and node.args:
        return _joined([_path(program, given, depth - 1) for given in node.args])
    value = program.value(node)
    if isinstance(value, str | PurePath):
        return PurePath(str(value))
    return _path(program, program.latest(node), depth - 1) if isinstance(node, ast.Name) else None


def _joined(parts: list[PurePath | None]) -> PurePath | None:
    known = [part for part in parts if part is not None]
    return PurePath(*known) if len(known) == len(parts) else None


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
