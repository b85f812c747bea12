"""What a notebook trains for: classes, numbers or masks, which unchoke has commands for, or something else, which it has not.

In comes a program as lint reads it, out goes a `NotebookTask`: the task, the data as words of a command, or what it is instead.
Only what the code shows counts: without a reader of class folders or a table of pictures there is no task.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

from unchoke.code.program import Program

Task = Literal["classes", "numbers", "masks", ""]

_FOLDERS = re.compile(r"(ImageFolder|image_dataset_from_directory|flow_from_directory|(DataLoaders|DataBunch)\.from_folder)$")
_FOLDER_ARGUMENTS = ("root", "directory", "path")
_TABLE = re.compile(r"(pandas|polars)\.(read_csv|read_parquet)$")
_TABLE_NAME = re.compile(r"\.(csv|tsv|parquet)$", re.IGNORECASE)
_NO_DATA = re.compile(r"log|hist|submission|metric|result|pred|loss|^test", re.IGNORECASE)
_SPLITS = {"train", "training", "val", "valid", "validation", "dev", "test", "testing"}
_HELD_BACK = re.compile(r"hold|test|val|new|predict|infer", re.IGNORECASE)
_PATHS = {"pathlib.Path", "pathlib.PurePath", "os.path.join", "str"}
_RASTERS = {"rasterio", "rioxarray", "osgeo", "gdal"}
_MASKS = re.compile(
    r"^(?:\w*unet\w*|(?:\w+_)?masks?|y_mask\w*|\w*segmentation\w*|dice\w*|\w*jaccard\w*|MaskBlock|mask_\w+)$", re.IGNORECASE
)
_MASK_WORDS = 8
_NUMBERS = re.compile(
    r"(MSELoss|L1Loss|SmoothL1Loss|HuberLoss|mse_loss|l1_loss|smooth_l1_loss|huber_loss|MeanSquaredError|MeanAbsoluteError)$"
)
_NUMBER_LOSSES = {"mse", "mae", "mean_squared_error", "mean_absolute_error", "huber", "logcosh"}
# What unchoke has nothing for, by the names that people give its parts.
_OTHER: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (words, re.compile(pattern, re.IGNORECASE))
    for words, pattern in (
        ("generates pictures", r"\w*discriminator\w*|\w*gan|gan_\w+|net_?[dg]|critic\w*|\w*diffusion\w*|ddpm|noise_scheduler"),
        ("learns to rebuild its input", r"\w*auto_?encoder\w*|vae|\w*_vae|reconstruct\w*|z_mean|latent_dim|kl_loss"),
        (
            "makes pictures of pictures",
            r"super_?res\w*|psnr|\w*upscale\w*|style_(?:loss|weight)\w*|content_loss|gram_matrix|enhance\w*|denois\w*",
        ),
        (
            "compares pictures",
            r"\w*siamese\w*|\w*contrastive\w*|\w*triplet\w*|simclr|simsiam|byol|nt_?xent\w*|make_pairs|anchor_embedd\w*",
        ),
        (
            "finds boxes",
            r"\w*bbox\w*|bounding_box\w*|\w*anchor_box\w*|yolo\w*|\w*rcnn\w*|retinanet\w*|iou_threshold|nms|num_boxes",
        ),
        (
            "reads text",
            r"tokenizer\w*|vocab\w*|word_index|pad_sequences|nltk|spacy|torchtext|caption\w*|ctc\w*|char_to_num|AutoTokenizer",
        ),
        ("learns from rewards", r"gym|gymnasium|replay_(?:buffer|memory)|q_network|epsilon_greedy|policy_net"),
        ("listens", r"librosa|torchaudio|spectrogram\w*|mfcc"),
    )
)
_OTHER_WORDS = 3


@dataclass(frozen=True)
class NotebookTask:
    """`data` and `options` are words of a shell command, empty where the code does not show them; `other`: what it is instead."""

    task: Task = ""
    data: str = ""
    options: str = ""
    other: str = ""


def read_task(program: Program, notebook: str) -> NotebookTask:
    """What the notebook as a whole trains for, and on what. Paths are those of the folder the command is typed in."""
    names = list(_identifiers(program))
    masks = sum(bool(_MASKS.match(name)) for name in names) >= _MASK_WORDS
    other = "" if masks else next((words for words, sign in _OTHER if _count(sign, names) >= _OTHER_WORDS), "")
    if other or _changes_folder(program):
        return NotebookTask("masks" if masks else "", other=other)
    where = _Places(program, notebook)
    if masks:
        rasters = any(module.partition(".")[0] in _RASTERS for module in program.modules)
        return NotebookTask("masks", where.first(_class_folders(program, labelled=False)) if rasters else "")
    folder = where.first(_class_folders(program, labelled=True))
    if folder:
        return NotebookTask("classes", folder)
    return _of_table(program, where)


def _count(sign: re.Pattern[str], names: list[str]) -> int:
    return sum(bool(sign.fullmatch(name)) for name in names)


def _identifiers(program: Program) -> Iterator[str]:
    """Every name in the code, as often as it stands there; words in comments and texts do not count."""
    for node in program.nodes(ast.Name, ast.Attribute, ast.FunctionDef, ast.ClassDef, ast.arg, ast.alias):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.alias):
            yield from node.name.split(".")


def _changes_folder(program: Program) -> bool:
    """`%cd` or `os.chdir`: what a relative path is relative to cannot be told then."""
    magics = any(re.search(r"^\s*%cd\b", cell.text, re.MULTILINE) for cell in program.source.cells if cell.kind == "code")
    return magics or any(program.name(call) == "os.chdir" for call in program.calls_to("chdir"))


class _Places:
    """Paths as they must be typed where the notebook's own path is `notebook`."""

    def __init__(self, program: Program, notebook: str) -> None:
        self._program = program
        self._folder = PurePath(notebook).parent

    def first(self, paths: Iterator[PurePath]) -> str:
        return next((self.typed(path) for path in paths if str(path).strip("./")), "")

    def typed(self, path: PurePath) -> str:
        return shlex.quote(str(path) if path.is_absolute() else os.path.normpath(self._folder / path))


def _class_folders(program: Program, *, labelled: bool) -> Iterator[PurePath]:
    for call in program.nodes(ast.Call):
        if any(map(_FOLDERS.search, (program.name(call), program.written(call.func)))) and not (
            labelled and _is_unlabelled(program, call)
        ):
            given = next((found for name in _FOLDER_ARGUMENTS if (found := program.argument(call, name, 0)) is not None), None)
            path = written_path(program, given)
            if path is None:
                continue
            if path.name.lower() in _SPLITS and len(path.parts) > 1:
                yield path.parent
            elif not _HELD_BACK.search(path.name):
                yield path


def _is_unlabelled(program: Program, call: ast.Call) -> bool:
    """`label_mode=None`, `class_mode=None`: the folders are no classes here."""
    given = [program.keyword(call, name) for name in ("label_mode", "class_mode")]
    return any(item is not None and program.value(item.value) in (None, "input") for item in given)


def _of_table(program: Program, where: _Places) -> NotebookTask:
    """A table whose rows name pictures: `flow_from_dataframe` says all of it, a data set of the file's own its folder."""
    table = where.first(_tables(program))
    if not table:
        return NotebookTask()
    for call in program.calls_to("flow_from_dataframe"):
        columns = {name: program.value(program.argument(call, name)) for name in ("x_col", "y_col", "class_mode")}
        folder = written_path(program, program.argument(call, "directory", 1))
        task: Task = "numbers" if columns["class_mode"] in ("raw", "other", "multi_output") else "classes"
        if isinstance(columns["x_col"], str) and isinstance(columns["y_col"], str):
            kind = "--target" if task == "numbers" else "--label"
            words = ["--path", columns["x_col"], kind, columns["y_col"]]
            images = f" --images {where.typed(folder)}" if folder is not None else ""
            return NotebookTask(task, table, f"{images} {shlex.join(words)}")
    return next(_of_own_dataset(program, where, table), NotebookTask())


def _of_own_dataset(program: Program, where: _Places, table: str) -> Iterator[NotebookTask]:
    """A data set of the file that joins a column of the table to a folder, decodes that, and returns another column with it."""
    task: Task = "numbers" if _learns_numbers(program) else "classes"
    for record in program.facts.per_sample:
        answer = next((_answer_column(program, item.value) for item in program.within(record.function, ast.Return)), "")
        for call in program.facts.decode_calls(record.function):
            given = _followed(program, call.args[0]) if call.args else None
            folder = written_path(program, _front(program, given))
            if folder is None or not str(folder).strip("./") or (task == "numbers" and not answer):
                continue
            column = _column(program, given)
            made = any(program.within(given, ast.JoinedStr)) if given is not None else False
            words = ["--id" if made else "--path", column] if column else []
            words += ["--target" if task == "numbers" else "--label", answer] if answer else []
            yield NotebookTask(
                task, table, f" --images {where.typed(folder)}{''.join(f' {shlex.quote(word)}' for word in words)}"
            )


def _followed(program: Program, node: ast.expr) -> ast.expr | None:
    return program.latest(node) if isinstance(node, ast.Name) else node


def _answer_column(program: Program, returned: ast.expr | None) -> str:
    """The column that a data set returns beside its picture."""
    last = returned.elts[-1] if isinstance(returned, ast.Tuple) and len(returned.elts) == 2 else None
    return _column(program, _followed(program, last)) if last is not None else ""


def _column(program: Program, node: ast.expr | None) -> str:
    """`price` in `row["price"]`, `self.df.loc[i, "price"]` and `self.df["price"][i]`; empty where it is not just one."""
    found = set()
    for part in program.within(node, ast.Subscript) if node is not None else ():
        keys = part.slice.elts if isinstance(part.slice, ast.Tuple) else [part.slice]
        found |= {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    return found.pop() if len(found) == 1 else ""


def _tables(program: Program) -> Iterator[PurePath]:
    for call in program.nodes(ast.Call):
        if _TABLE.search(program.name(call)):
            path = written_path(program, program.argument(call, "filepath_or_buffer", 0))
            if path is not None and _TABLE_NAME.search(path.name) and not _NO_DATA.search(path.name):
                yield path


def _front(program: Program, node: ast.AST | None) -> ast.expr | None:
    """`ROOT` in `os.path.join(ROOT, name)` and `ROOT / name`."""
    if isinstance(node, ast.Call) and program.name(node) in _PATHS and node.args:
        return _front(program, node.args[0]) or node.args[0]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return node.left
    return None


def _learns_numbers(program: Program) -> bool:
    if any(_NUMBERS.search(program.name(call)) for call in program.nodes(ast.Call)):
        return True
    losses = [program.value(program.argument(call, "loss", 1)) for call in program.calls_to("compile")]
    return any(isinstance(loss, str) and loss in _NUMBER_LOSSES for loss in losses)


def written_path(program: Program, node: ast.AST | None, depth: int = 8) -> PurePath | None:
    """A path that is written out, through constants, `Path(…)`, `/` and `os.path.join`; None if part of it is not."""
    if node is None or not depth:
        return None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return _joined([written_path(program, side, depth - 1) for side in (node.left, node.right)])
    if isinstance(node, ast.Call) and program.name(node) in _PATHS and node.args:
        return _joined([written_path(program, given, depth - 1) for given in node.args])
    value = program.value(node)
    if isinstance(value, str | PurePath):
        return PurePath(str(value))
    return written_path(program, program.latest(node), depth - 1) if isinstance(node, ast.Name) else None


def _joined(parts: list[PurePath | None]) -> PurePath | None:
    known = [part for part in parts if part is not None]
    return PurePath(*known) if len(known) == len(parts) else None
