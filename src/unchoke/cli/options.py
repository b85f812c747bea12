"""The options that several commands share, each declared once with its help text.

`takes(...)` gives a command function the named options: typer reads a function's signature, so the decorator writes it.
Inside the command they arrive together, as a dictionary of what was typed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

DATA = (
    *("data", "images", "id", "path", "label", "target", "long", "group"),
    *("split", "val_share", "test_share", "folds", "fold", "expect", "max_failures"),
)
FEATURES = ("encoder", "weights", "cut", "views", "engine", "precision", "device", "workers", "job_size")
HEAD = (
    *("head", "epochs", "batch_size", "lr", "weight_decay", "label_smoothing"),
    *("mixup", "class_weights", "patience", "sweep", "seed"),
)

_PANELS = {**dict.fromkeys(DATA, "Data"), **dict.fromkeys(FEATURES, "Frozen part"), **dict.fromkeys(HEAD, "Trained part")}

_OPTIONS: dict[str, tuple[Any, str]] = {
    "images": (list[str], "Folder that holds the images of a table; repeat it for several folders."),
    "id": (str, "Column with image ids (file names with or without ending), looked up in the image folders."),
    "path": (str, "Column with image paths, relative to the image folders or to the table."),
    "label": (str, "Column with the class of each image."),
    "target": (list[str], "Numeric column to predict; repeat it for several. For long tables: a target name to keep."),
    "long": (str, "NAME,VALUE columns of a table with one row per image and target."),
    "group": (str, "Column that must not be torn apart by the split: all pictures of a lesion, a patient, a plant."),
    "split": (str, "Column with train, val or test. Left out, a stratified split is made and kept."),
    "val_share": (float, "Share of the samples used to pick the best head (default 0.15)."),
    "test_share": (float, "Share of the samples kept back for the final figures (default 0.15)."),
    "folds": (int, "Split into K folds instead; --fold says which one is the test set."),
    "fold": (int, "Which fold is the test set (default 0)."),
    "expect": (str, "What every image should be, for instance '600x450 rgb'."),
    "max_failures": (float, "Share of unreadable images above which the run stops (default 0.05)."),
    "encoder": (str, "Frozen network: any timm model name (default tf_efficientnet_lite0)."),
    "weights": (str, "Weights file for the encoder: safetensors, or a .pt with nothing but tensors."),
    "cut": (str, "Where the frozen part ends. This version: end."),
    "views": (int, "Cache K augmented views of each image as well; training draws among them (default 0)."),
    "engine": (str, "torch or openvino. Left out, the fastest that agrees with float32 torch on your images."),
    "precision": (str, "f32, bf16, f16 or int8 for the frozen part. Left out, chosen and checked."),
    "device": (str, "cpu, cuda, cuda:N or mps. Left out, chosen by `unchoke doctor`'s rules."),
    "workers": (int, "Threads or processes that load and encode."),
    "job_size": (int, "Images per micro-job (default 64)."),
    "head": (str, "linear, mlp or attention. Left out, a few are tried and validation picks."),
    "epochs": (int, "Passes over the cached features (default 20)."),
    "batch_size": (int, "Samples per step. Left out, chosen from the size of the train split."),
    "lr": (float, "Learning rate of the head."),
    "weight_decay": (float, "AdamW weight decay of the head."),
    "label_smoothing": (float, "Label smoothing, 0 to below 1."),
    "mixup": (float, "Mixup on features: alpha of its beta distribution, 0 for none."),
    "class_weights": (str, "none, tempered or balanced: weigh rare classes up."),
    "patience": (int, "Stop after this many epochs without a better validation score, 0 for never."),
    "sweep": (int, "Train this many head configurations at once and pick by validation."),
    "seed": (int, "Seed of everything that is random (default 0)."),
}


def takes(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give the decorated command these options; it receives what was typed as its first argument, a dictionary."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [
            parameter for parameter in inspect.signature(command, eval_str=True).parameters.values() if parameter.name != "typed"
        ]

        @wraps(command)
        def wrapped(**values: Any) -> None:
            typed = {name: _plain(name, values.pop(name)) for name in names}
            command(typed, **values)

        parameters = [_parameter(name) for name in names] + [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
        signature = inspect.Signature(parameters)
        wrapped.__signature__ = signature  # type: ignore[attr-defined]
        wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return wrapped

    return decorate


def _parameter(name: str) -> inspect.Parameter:
    if name == "data":
        about = "Class folders, or a CSV or Parquet table. Left out, what this workspace was made for."
        annotation: Any = Annotated[str | None, typer.Argument(help=about, show_default=False)]
    else:
        kind, about = _OPTIONS[name]
        flag = "--" + name.replace("_", "-")
        annotation = Annotated[kind | None, typer.Option(flag, help=about, show_default=False, rich_help_panel=_PANELS[name])]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _plain(name: str, value: Any) -> Any:
    if name == "long" and value is not None:
        return tuple(part.strip() for part in value.split(","))
    if isinstance(value, list):
        return tuple(value)
    return value


Out = Annotated[Path | None, typer.Option("--out", help="Workspace folder (default unchoke-out).", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="One JSON object per line on stdout; the last is the result.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done; nothing is extracted or trained.")]
Weights = Annotated[Path | None, typer.Option("--weights", help="The encoder's weights, where they are no longer found.")]
Run = Annotated[str, typer.Argument(help="A run: exp_3, 3, latest, best, or an exported folder.")]
