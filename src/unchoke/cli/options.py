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

from unchoke.core.flags import option, switched_off

DATA = (
    *("data", "preset", "images", "id", "path", "label", "target", "long", "input", "group", "split", "val_share", "test_share"),
    *("folds", "fold", "sums", "target_weights", "positive", "expect", "max_failures"),
)
FEATURES = ("encoder", "weights", "cut", "input_px", "streams", "tiles", "views", "engine", "precision", "cache", "job_size")
TRAINED = (
    *("head", "fusion", "epochs", "batch_size", "lr", "weight_decay", "layer_decay", "warmup", "ema", "clip"),
    *("label_smoothing", "mixup", "augment", "class_weights", "batch_norm", "patience", "sweep", "seed"),
)
DEVICE = ("device", "workers")
MACHINE = (
    *("memory", "sub_batch", "eval_batch", "grad_ckpt", "train_precision", "compile", "channels_last"),
    *("devices", "checkpoint_every"),
)
SCHEDULE = ("profile_wait", "profile_warmup", "profile_active", "profile_repeat")
PROFILED = ("profile", *SCHEDULE)
SCENES = (
    *(
        "data",
        "preset",
        "images",
        "id",
        "path",
        "group",
        "split",
        "bands",
        "label",
        "mask",
        "polygons",
        "polygon_class",
        "grid",
        "resampling",
        "normalise",
    ),
    *("ignore", "classes", "overlap", "block_px", "val_share", "test_share", "max_failures", "seed"),
)
TILES = ("tile_size", "edges", "min_valid", "compress", "store", "parallel")  # as settings.OF_TILES, without loading it
PATCHES = ("patch_size", "strides", "encoder", "weights", "cut", "views", "engine", "precision", "job_size")
DECODER = (
    *("decoder", "dice", "baseline", "epochs", "batch_size", "lr", "weight_decay", "layer_decay", "warmup", "ema", "clip"),
    *("augment", "class_weights", "batch_norm", "patience"),
)
"""What `unchoke segment train` trains; its cut is pyramid where nothing is typed."""
BUDGET = (
    *("encoder", "cut", "input_px", "streams", "tiles", "fusion", "batch_size", "augment", "device", "memory"),
    *("grad_ckpt", "train_precision", "channels_last"),
)
"""What `unchoke budget` looks at; its cut is none where nothing is typed."""

_PANELS = {
    **dict.fromkeys((*SCENES, *TILES), "Scenes"),
    **dict.fromkeys(("decoder", "dice", "baseline"), "Trained part"),
    **dict.fromkeys(("patch_size", "strides"), "Frozen part"),
    **dict.fromkeys(DATA, "Data"),
    **dict.fromkeys(FEATURES, "Frozen part"),
    **dict.fromkeys(TRAINED, "Trained part"),
    **dict.fromkeys((*DEVICE, *MACHINE), "Machine"),
    **dict.fromkeys(PROFILED, "Profile"),
}

_OPTIONS: dict[str, tuple[Any, str]] = {
    "preset": (str, "Settings that belong together, see `unchoke presets list`; what is typed wins. 'none' forgets one."),
    "images": (list[str], "Folder that holds the images of a table; repeat it for several folders."),
    "id": (str, "Column with image ids (file names with or without ending), looked up in the image folders."),
    "path": (str, "Column with image paths, relative to the image folders or to the table."),
    "label": (str, "Column with the class of each image. For scenes: a label raster, a folder of them, or a column."),
    "target": (list[str], "Numeric column to predict; repeat it for several. For long tables: a target name to keep."),
    "long": (str, "NAME,VALUE columns of a table with one row per image and target."),
    "input": (list[str], "Numeric column the network sees beside the image (NDVI, height); repeat it for several."),
    "group": (str, "Column that must not be torn apart by the split: all pictures of a lesion, a patient, a plant."),
    "split": (str, "Column with train, val or test. Left out, a stratified split is made and kept."),
    "val_share": (float, "Share of the samples used to pick the best epoch or head (default 0.15)."),
    "test_share": (float, "Share of the samples kept back for the final figures (default 0.15)."),
    "folds": (int, "Split into K folds instead; --fold says which one is the test set."),
    "fold": (str, "Which fold is the test set (default 0), or all: one run for each, every sample predicted once."),
    "sums": (list[str], "NAME=A+B: this target is the sum of others and is derived, not learned; repeat it for several."),
    "target_weights": (list[str], "NAME=W: what this target counts in loss and score; repeat it for several."),
    "positive": (bool, "Targets are never negative: the outputs cannot be either (default no)."),
    "expect": (str, "What every image should be, for instance '600x450 rgb'; 'any' drops what a preset expects."),
    "max_failures": (float, "Share of unreadable images above which the run stops (default 0.05)."),
    "bands": (list[str], "Bands to use, in this order: B2,B3,B4, or repeat it. Left out, all bands every scene has."),
    "mask": (str, "Expression over bands that is true inside the mask, for instance '(B3-B5)/(B3+B5) > 0'."),
    "polygons": (str, "Vector file (GeoJSON, GeoPackage, shapefile) whose polygons are the mask."),
    "polygon_class": (str, "Field of the polygons that holds their class number. Left out, every polygon is class 1."),
    "grid": (str, "Pixels to work on: finest, coarsest, the name of a band, or a pixel size (default finest)."),
    "resampling": (str, "nearest, bilinear, cubic or average: how bands come onto the grid (default bilinear)."),
    "normalise": (str, "none, max, percentile, percentile:2,98, a number, or B2=10000,B3=9000: what bands are divided by."),
    "ignore": (int, "Label value that counts as unlabelled."),
    "classes": (list[str], "Names of the classes 0, 1, …: clear,cloud, or repeat it."),
    "overlap": (int, "Pixels that neighbouring windows share (default 0 for tiles, 64 for patches)."),
    "block_px": (int, "Side of the blocks that go to train, val or test as a whole. Left out, chosen from the scenes."),
    "tile_size": (str, "Side of a tile in pixels (default 512), or auto: measured on your scenes."),
    "edges": (str, "smaller or padded: what becomes of windows at the right and lower edge (default smaller)."),
    "min_valid": (float, "Skip tiles with a smaller share of valid pixels (default 0: none are skipped)."),
    "compress": (str, "isal, zlib or none: how NPZ files are written. Left out, measured on your scenes."),
    "store": (str, "float32, normalised; or raw: as the files have it, with the constants beside it (default float32)."),
    "parallel": (str, "threads or processes. Left out, threads, unless processes measure faster."),
    "patch_size": (int, "Side of a patch in pixels (default 256)."),
    "strides": (str, "Levels of the encoder's pyramid that are kept (default 4,8,16,32)."),
    "decoder": (str, "unet or fpn, from segmentation-models-pytorch (default fpn; unet for other strides than 4,8,16,32)."),
    "baseline": (str, "Expression to compare with on the test pixels, true for class 1: '(b3-b6)/(b3+b6) > 0'."),
    "dice": (float, "Share of the Dice loss; the rest is cross-entropy (default 0.5)."),
    "encoder": (str, "Network: any timm model name (default tf_efficientnet_lite0)."),
    "weights": (str, "Weights file for the encoder: safetensors, or a .pt with nothing but tensors."),
    "cut": (
        str,
        "Where the frozen part ends: end (all; for masks, pyramid), -4 (the last 4 blocks train), none (everything trains).",
    ),
    "input_px": (int, "Side of the square the network sees, in pixels. Left out, the one it was made for."),
    "streams": (int, "Split each image side by side into this many streams (default 1)."),
    "tiles": (str, "ROWSxCOLUMNS grid on each stream, every tile seen at full input size (default 1x1)."),
    "views": (int, "Cache K augmented views of each image as well; training draws among them (default 0)."),
    "engine": (str, "torch or openvino. Left out, the fastest that agrees with float32 torch on your images."),
    "precision": (str, "f32, bf16, f16 or int8 for the frozen part. Left out, chosen and checked."),
    "cache": (str, "ram, disk or none: where decoded images are kept with --cut none. Left out, chosen by what fits."),
    "device": (str, "cpu, cuda, cuda:N or mps. Left out, chosen by `unchoke doctor`'s rules."),
    "workers": (int, "Threads or processes that load and encode."),
    "job_size": (int, "Images per micro-job (default 64)."),
    "head": (str, "linear, mlp or attention, on the frozen network. Left out, a few are tried and validation picks."),
    "fusion": (str, "How tiles become one: mean, film (each tile adjusted by their mean) or attention (default mean)."),
    "epochs": (int, "Passes over the training samples (default 20)."),
    "batch_size": (int, "Samples per step. Left out, chosen from the size of the train split."),
    "lr": (float, "Learning rate: of the head, and of the last block that trains."),
    "weight_decay": (float, "AdamW weight decay."),
    "layer_decay": (float, "Learning rate of each layer as a share of that of the layer above it, up to 1."),
    "warmup": (float, "Epochs in which the learning rate rises to its full value."),
    "ema": (float, "Decay of the running average of the weights that is evaluated and kept, 0 for none."),
    "clip": (float, "Largest gradient norm, 0 for no limit."),
    "label_smoothing": (float, "Label smoothing, 0 to below 1."),
    "mixup": (float, "Mixup: alpha of its beta distribution, 0 for none."),
    "augment": (str, "none, light or strong: how much images are varied with --cut none."),
    "class_weights": (str, "none, tempered or balanced: weigh rare classes up."),
    "batch_norm": (str, "frozen or train: whether batch statistics follow your images in the part that trains."),
    "patience": (int, "Stop after this many epochs without a better validation score, 0 for never."),
    "sweep": (int, "Train this many head configurations at once and pick by validation."),
    "seed": (int, "Seed of everything that is random (default 0)."),
    "memory": (str, "Memory that training may take, for instance 4GB; batches are measured and chosen to stay below."),
    "sub_batch": (int, "Samples that go through the network at once; a step adds up several. Left out, what fits."),
    "eval_batch": (int, "Samples at once where no gradients are needed. Left out, what fits."),
    "grad_ckpt": (bool, "Compute activations twice to save memory. Left out, only where it is needed."),
    "train_precision": (str, "f32, bf16 or f16 for the part that trains. Left out, what is safe on this device."),
    "compile": (bool, "Compile the network with torch.compile. Left out, only where it repays its time."),
    "channels_last": (bool, "Channels-last memory layout. Left out, only where it is safe and faster."),
    "devices": (int, "Processes that train together, one for each device (default 1)."),
    "checkpoint_every": (float, "Seconds between checkpoints within an epoch (default 60)."),
    "profile": (bool, "Record the first steps with torch.profiler, into logs/profiler: traces, a page, the top operators."),
    "profile_wait": (int, "Steps to let pass before the profiler begins (default 1)."),
    "profile_warmup": (int, "Steps in which it runs and keeps nothing (default 1)."),
    "profile_active": (int, "Steps that are recorded (default 3)."),
    "profile_repeat": (int, "How often, one trace each (default 1)."),
}


PHOTOS_ARGUMENT = "Class folders, or a CSV or Parquet table. Left out, what this workspace was made for."
SCENES_ARGUMENT = (
    "Band files or multi-band files in folders, a large image, or a table. Left out, what this workspace was made for."
)


def takes(*names: str, data: str = PHOTOS_ARGUMENT) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give the decorated command these options; it receives what was typed as its first argument, a dictionary.

    `data` is what the help says of DATA.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [
            parameter for parameter in inspect.signature(command, eval_str=True).parameters.values() if parameter.name != "typed"
        ]

        @wraps(command)
        def wrapped(**values: Any) -> None:
            typed = {name: _plain(name, values.pop(name)) for name in names}
            command(typed, **values)

        parameters = [_parameter(name, data) for name in names] + [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
        signature = inspect.Signature(parameters)
        wrapped.__signature__ = signature  # type: ignore[attr-defined]
        wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return wrapped

    return decorate


def _parameter(name: str, data: str) -> inspect.Parameter:
    if name == "data":
        annotation: Any = Annotated[str | None, typer.Argument(help=data, show_default=False)]
    else:
        kind, about = _OPTIONS[name]
        flags = f"{option(name)}/{switched_off(name)}" if kind is bool else option(name)
        annotation = Annotated[kind | None, typer.Option(flags, help=about, show_default=False, rich_help_panel=_PANELS[name])]
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
Detach = Annotated[bool, typer.Option("--detach", help="Work in the background; `unchoke runs watch` shows how far it is.")]
Weights = Annotated[Path | None, typer.Option("--weights", help="The encoder's weights, where they are no longer found.")]
Run = Annotated[str, typer.Argument(help="A run: exp_3, 3, latest, best, or an exported folder.")]
