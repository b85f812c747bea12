"""How a cell's long work can be done in pieces that go on after a kill: a command of unchoke for this data, or lines for
one's own loop.

In comes a program as lint reads it; out comes a `Plan`: the command with folders, labels, targets and encoder read from the
code, how many micro-jobs it makes and which files appear; or a code cell. Where no command fits, `why_not` says why.
"""

from __future__ import annotations

import ast
import math
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

from unchoke_doctor.code.data import dataset_classes, is_decode
from unchoke_doctor.code.outputs import Outputs
from unchoke_doctor.code.program import Program
from unchoke_doctor.code.trace import given, texts, value
from unchoke_doctor.code.training import Training, trainings
from unchoke_doctor.units import format_count

JOB_SIZE = 64
_FOLDERS = ("ImageFolder", "image_dataset_from_directory", "flow_from_directory", "from_folder")
_SPLITS = {"train", "training", "val", "valid", "validation", "dev", "test", "testing"}
_TABLE = re.compile(r"\.(csv|tsv|parquet)$", re.IGNORECASE)
_NOT_DATA = re.compile(r"log|hist|submission|metric|result|pred|loss|^test", re.IGNORECASE)
_PICTURES = {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff"}
_MOST_COUNTED = 200_000
_NUMBERS = re.compile(
    r"(MSELoss|L1Loss|SmoothL1Loss|HuberLoss|mse_loss|l1_loss|smooth_l1_loss|MeanSquaredError|MeanAbsoluteError)$"
)
_NUMBER_LOSSES = {"mse", "mae", "mean_squared_error", "mean_absolute_error", "huber"}
_MASKS = re.compile(
    r"^(?:\w*unet\w*|(?:\w+_)?masks?|y_mask\w*|\w*segmentation\w*|dice\w*|\w*jaccard\w*|mask_\w+)$", re.IGNORECASE
)
# What unchoke has no command for, by the names that people give its parts.
_OTHER = tuple((what, re.compile(pattern, re.IGNORECASE)) for what, pattern in (
    ("generates images", r"\w*discriminator\w*|\w*gan|gan_\w+|net_?[dg]|critic\w*|\w*diffusion\w*|ddpm|noise_scheduler"),
    ("learns to rebuild its input", r"\w*auto_?encoder\w*|vae|\w*_vae|reconstruct\w*|z_mean|latent_dim|kl_loss"),
    ("makes images from images", r"super_?res\w*|psnr|\w*upscale\w*|style_(?:loss|weight)\w*|content_loss|gram_matrix|denois\w*"),
    ("compares images", r"\w*siamese\w*|\w*contrastive\w*|\w*triplet\w*|simclr|byol|nt_?xent\w*|make_pairs"),
    ("finds boxes", r"\w*bbox\w*|bounding_box\w*|\w*anchor_box\w*|yolo\w*|\w*rcnn\w*|retinanet\w*|iou_threshold|nms|num_boxes"),
    ("reads text", r"tokenizer\w*|vocab\w*|word_index|pad_sequences|nltk|spacy|torchtext|caption\w*|ctc\w*|char_to_num"),
    ("learns from rewards", r"gym|gymnasium|replay_(?:buffer|memory)|q_network|epsilon_greedy|policy_net"),
    ("listens to sound", r"librosa|torchaudio|spectrogram\w*|mfcc"),
))  # fmt: skip
_READY_MADE = re.compile(
    r"torchvision\.datasets\.(\w+)$|(?:keras|tensorflow)\S*datasets\.(\w+)\.load_data$|\bload_dataset$|tensorflow_datasets\.load$"
)
_ENCODERS = {
    "mobilenet_v2": "mobilenetv2_100", "mobilenet_v3_large": "mobilenetv3_large_100",
    "mobilenet_v3_small": "mobilenetv3_small_100",
    "vit_b_16": "vit_base_patch16_224", "swin_t": "swin_tiny_patch4_window7_224", "MobileNetV2": "mobilenetv2_100",
    "ResNet50": "resnet50", "ResNet101": "resnet101", "VGG16": "vgg16", "VGG19": "vgg19", "DenseNet121": "densenet121",
    "InceptionV3": "inception_v3",
}  # fmt: skip
_SAME_NAME = re.compile(r"(resnet|resnext|wide_resnet|vgg|densenet|efficientnet_b|convnext_|inception_v)\w*$")
_KERAS_EFFICIENT = re.compile(r"EfficientNetB(\d)$")
_THAWED = re.compile(r"trainable\s*=\s*True|requires_grad_?\s*(?:=\s*True|\(True\))|unfreeze")
_FROZEN = re.compile(r"trainable\s*=\s*False|requires_grad_?\s*(?:=\s*False|\(False\))|\bfreeze\(")
RESUMES = re.compile(r"latest_checkpoint|BackupAndRestore|resume|start_epoch|ckpt_path\s*=|initial_epoch")


@dataclass(frozen=True)
class Plan:
    """`command` does the work in pieces; `steps` says how many and what appears; `code` is for one's own loop."""

    command: str = ""
    steps: tuple[str, ...] = ()
    code: str = ""
    why_not: str = ""


class Planner:
    """What the notebook as a whole trains for, and on what: read once, used for every cell."""

    def __init__(self, program: Program, outputs: Outputs, notebook: str, frozen: bool) -> None:
        self._program, self._outputs, self._notebook = program, outputs, notebook
        self._text = "\n".join(cell.python for module in program.modules for cell, _ in module.cells)
        self.frozen = frozen or (bool(_FROZEN.search(self._text)) and not _THAWED.search(self._text))

    @cached_property
    def _other(self) -> str:
        """What the notebook trains for, where that is nothing that a command does."""
        names = list(_identifiers(self._program))
        if sum(bool(_MASKS.match(name)) for name in names) >= 8:
            return "makes masks"
        return next((what for what, sign in _OTHER if sum(bool(sign.fullmatch(name)) for name in names) >= 3), "")

    @cached_property
    def _base(self) -> PurePath | None:
        """The folder that relative paths are relative to; None where the notebook changes it in a way that cannot be read."""
        own = PurePath(self._notebook).parent
        cells = [cell for module in self._program.modules for cell, _ in module.cells]
        moved = [found[1].strip("'\"") for cell in cells if (found := re.search(r"^\s*%cd\s+(\S+)", cell.text, re.MULTILINE))]
        moved += [next(iter(texts(self._program, call.args[0])), "*") for call in self._program.calls_to("os.chdir") if call.args]
        return None if len(moved) > 1 or "*" in "".join(moved) else own / moved[0] if moved else own

    @cached_property
    def data(self) -> tuple[list[str], str, list[str]]:
        """The words of a command that name the data, why there are none, and the folders that hold the images."""
        if self._other == "makes masks":
            return (
                [],
                "it makes masks: `unchoke segment train` reads scenes (GeoTIFF, large images), and this notebook has none",
                [],
            )
        if self._other:
            return [], f"it {self._other}, and unchoke has no command for that", []
        if self._base is None:
            return [], "the notebook changes its folder while it runs, so the paths in its code do not say where the data is", []
        folder = next(self._class_folders(), None)
        if folder is not None:
            return [self._typed(folder)], "", [str(folder)]
        found = next(self._tables(), None)
        if found is not None:
            return found[0], "", found[1]
        made = [match for call in self._program.calls if (match := _READY_MADE.search(self._program.name(call)))]
        arrays = [
            text
            for call in self._program.calls_to("numpy.load", "h5py.File")
            for text in texts(self._program, call.args[0])[:1]
            if call.args
        ]
        if made and not any("ImageFolder" in match[0] for match in made):
            return [], f"the data comes ready-made from {made[0][0]}, not from image files that unchoke reads", []
        if arrays:
            return [], f"the data is read as arrays ({PurePath(arrays[0]).name}), not as image files", []
        return [], "the code does not show class folders or a table of images", []

    def _class_folders(self) -> Iterator[PurePath]:
        for call in self._program.calls_to(*_FOLDERS):
            unlabelled = [given(self._program, call, name) for name in ("label_mode", "class_mode")]
            if any(word is not None and value(self._program, word) in (None, "input") for word in unlabelled):
                continue
            where = next(
                (found for name in ("root", "directory", "path") if (found := given(self._program, call, name)) is not None), None
            )
            where = where if where is not None else (call.args[0] if call.args else None)
            for text in texts(self._program, where) if where is not None else ():
                path = PurePath(text)
                if path.name.lower() in _SPLITS:
                    path = path.parent
                if "*" not in str(path) and str(path) not in ("", "/"):
                    yield path

    def _tables(self) -> Iterator[tuple[list[str], list[str]]]:
        """A table whose rows name images: `flow_from_dataframe` says all of it, a dataset class its columns and folders."""
        calls = self._program.calls_to("read_csv", "read_parquet", "read_table")
        named = [PurePath(text) for call in calls if call.args for text in texts(self._program, call.args[0])]
        tables = [path for path in named if _TABLE.search(path.name) and not _NOT_DATA.search(path.name) and "*" not in str(path)]
        if not tables:
            return
        table = self._typed(tables[0])
        for call in self._program.calls_to("flow_from_dataframe"):
            words = {name: given(self._program, call, name) for name in ("x_col", "y_col", "class_mode", "directory")}
            known = {name: value(self._program, word) if word is not None else None for name, word in words.items()}
            if isinstance(known["x_col"], str) and isinstance(known["y_col"], str | list):
                kind = "--target" if known["class_mode"] in ("raw", "other", "multi_output") else "--label"
                answers = known["y_col"] if isinstance(known["y_col"], list) else [known["y_col"]]
                folders = texts(self._program, words["directory"]) if words["directory"] is not None else []
                yield [table, *self._images(folders), "--path", known["x_col"], *_each(kind, answers)], folders
        yield from self._own_datasets(table)

    def _own_datasets(self, table: str) -> Iterator[tuple[list[str], list[str]]]:
        """A dataset class that joins a column to a folder, decodes that, and returns other columns with it."""
        kind = "--target" if self._learns_numbers else "--label"
        for owner in dataset_classes(self._program):
            item = self._program.method(owner, "__getitem__")
            if item is None:
                continue
            for call in self._program.reached(item):
                if not is_decode(self._program, call) or not call.args:
                    continue
                paths = [text for text in texts(self._program, call.args[0]) if "*" in text]
                folders = list(
                    dict.fromkeys(str(PurePath(text.partition("*")[0])) for text in paths if "/" in text.partition("*")[0])
                )
                column = next(iter(_columns(item, call.args[0])), "")
                answers = [name for name in _returned_columns(item) if name != column]
                if not folders or not answers:
                    continue
                ends = any(PurePath(text).suffix.lower() in _PICTURES for text in paths)
                words = [("--id" if ends else "--path"), column] if column else []
                yield [table, *self._images(folders), *words, *_each(kind, answers)], folders

    @cached_property
    def _learns_numbers(self) -> bool:
        losses = [
            value(self._program, word)
            for call in self._program.calls_to("compile")
            if (word := given(self._program, call, "loss")) is not None
        ]
        named = any(isinstance(loss, str) and loss in _NUMBER_LOSSES for loss in losses)
        return named or any(_NUMBERS.search(self._program.name(call)) for call in self._program.calls)

    def _images(self, folders: Sequence[str]) -> list[str]:
        return _each("--images", [self._typed(PurePath(folder)) for folder in folders])

    def _typed(self, path: PurePath) -> str:
        assert self._base is not None
        return str(path) if path.is_absolute() or str(path).startswith("~") else os.path.normpath(self._base / path)

    @cached_property
    def _encoder(self) -> str:
        for call in self._program.calls:
            name = self._program.name(call)
            last = name.rpartition(".")[2]
            if last == "create_model" and call.args and isinstance(found := value(self._program, call.args[0]), str):
                return found
            if "models" in name or "applications" in name:
                known = _ENCODERS.get(last) or (last if _SAME_NAME.match(last) else "")
                efficient = _KERAS_EFFICIENT.match(last)
                if known or efficient:
                    return known or f"efficientnet_b{efficient[1] if efficient else 0}"
        return ""

    def _num_images(self, folders: Sequence[str]) -> tuple[int | None, str]:
        """How many images there are: counted where the folders exist, else what the saved outputs print."""
        found = 0
        for folder in folders:
            for _, _, names in os.walk(self._typed(PurePath(folder))):
                found += sum(PurePath(name).suffix.lower() in _PICTURES for name in names)
                if found > _MOST_COUNTED:
                    break
        if found:
            return found, "counted in the folder"
        return self._outputs.images, "by the saved outputs"

    def command(self, word: str) -> str:
        """`unchoke fit …` or `unchoke extract …` for this data; empty where it could not read it."""
        words, why_not, _ = self.data
        if why_not:
            return ""
        more = ["--encoder", self._encoder] if self._encoder else []
        more += ["--cut", "none"] if word == "fit" and not self.frozen else []
        return shlex.join(["unchoke", word, *words, *more])

    def plan(self, training: Training | None, *, word: str = "fit") -> Plan:
        """For a cell that trains, or (`extract`) runs a frozen network over every image."""
        _, why_not, folders = self.data
        command = self.command(word)
        code = self._own_loop(training) if training is not None else ""
        if not command:
            return Plan(code=code, why_not=why_not)
        count, source = self._num_images(folders)
        jobs = (
            f"{format_count(math.ceil(count / JOB_SIZE), 'micro-job')} of {JOB_SIZE} images ({count:,} images, {source})"
            if count
            else (f"micro-jobs of {JOB_SIZE} images each")
        )
        features = f"{jobs}: each writes unchoke-out/features/encoder_…/img_FIRST-LAST.npz, then job_….done; a kill costs one job"
        trained = "unchoke-out/experiments/exp_N/: checkpoints/last.pt after every epoch, history.json, report.html; "
        trained += "the same command goes on after a kill"
        if word == "extract":
            return Plan(command, (features, 'unchoke.FeatureDataset("unchoke-out") gives them to your own code'))
        return Plan(command, (features, trained) if self.frozen else (trained,), code)

    def _own_loop(self, training: Training) -> str:
        """Lines that let the person's own loop go on: the feature cache where a network is frozen, else checkpoint and resume."""
        extract = self.command("extract")
        if self.frozen and extract and training.kind == "torch":
            return (
                f"# once, in a shell: {extract}\nimport unchoke\n"
                'data = unchoke.FeatureDataset("unchoke-out", split="train")  # in place of the images\n'
                f"{_text(training.model) or 'frozen'} = torch.nn.Identity()  # the frozen part: its features are computed"
            )
        if training.kind == "keras":
            model = _text(training.model) or "model"
            return f'{model}.fit(…, callbacks=[…, keras.callbacks.BackupAndRestore("backup")])  # goes on after a kill'
        if training.kind != "torch":
            return ""
        model, optimizer = _text(training.model) or "model", self._stepped(training) or "optimizer"
        return (
            f'start = 0\nif os.path.exists("last.pt"):\n    state = torch.load("last.pt", weights_only=True)\n'
            f'    {model}.load_state_dict(state["model"])\n    {optimizer}.load_state_dict(state["optimizer"])\n'
            f'    start = state["epoch"] + 1\nfor epoch in range(start, {training.epochs or "EPOCHS"}):\n    …  # your epoch\n'
            f'    torch.save({{"model": {model}.state_dict(), "optimizer": {optimizer}.state_dict(), "epoch": epoch}}, '
            f'"last.tmp")\n'
            '    os.replace("last.tmp", "last.pt")'
        )

    def _stepped(self, training: Training) -> str:
        calls = self._program.reached(training.node)
        names = [_text(call.func.value) for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "step"]
        return next((name for name in names if "opt" in name.lower()), "")

    def training_of(self, cell: int) -> Training | None:
        """The training that a cell runs."""
        for one in trainings(self._program):
            parts = [part for part in (one.node, *one.chain) if self._program.is_own(part)]
            if parts and self._program.place(parts[-1]).cell == cell:
                return one
        return None


def _text(node: ast.AST | None) -> str:
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""


def _each(option: str, values: Sequence[str]) -> list[str]:
    return [word for one in values for word in (option, one)]


def _identifiers(program: Program) -> Iterator[str]:
    """Every name in the code, as often as it stands there; words in comments and texts do not count."""
    for module in program.modules[:1]:
        for _, tree in module.cells:
            for node in ast.walk(tree):
                name = (
                    getattr(node, "id", None)
                    or getattr(node, "attr", None)
                    or getattr(node, "arg", None)
                    or getattr(node, "name", None)
                )
                if isinstance(name, str):
                    yield from name.split(".")


def _columns(function: ast.AST, node: ast.AST, deepest: int = 3) -> list[str]:
    """`price` in `row["price"]` and `self.df.loc[i, "price"]`, through names of the same function."""
    found: dict[str, None] = {}
    for part in ast.walk(node):
        if isinstance(part, ast.Subscript):
            keys = part.slice.elts if isinstance(part.slice, ast.Tuple | ast.List) else [part.slice]
            found |= {key.value: None for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
        elif isinstance(part, ast.Name) and deepest:
            assigned = [
                one.value for one in ast.walk(function) if isinstance(one, ast.Assign) and part.id in map(_text, one.targets)
            ]
            found |= {name: None for one in assigned if one is not node for name in _columns(function, one, deepest - 1)}
        elif isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "row":
            found[part.attr] = None
    return list(found)


def _returned_columns(function: ast.AST) -> list[str]:
    """The columns that a dataset returns beside its image."""
    for part in ast.walk(function):
        if isinstance(part, ast.Return) and isinstance(part.value, ast.Tuple) and len(part.value.elts) >= 2:
            return [name for element in part.value.elts[1:] for name in _columns(function, element)]
    return []
