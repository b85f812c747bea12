"""The one table of settings: every option of every command, with its type, default, bounds and what becomes of it.

An entry of `Settings` is all there is to declare: `Settings` checks values, the command line (`cli/options.py`), the functions of
`import unchoke` (`core/keywords.py`), what a workspace remembers (`core/remembered.py`) and what tells two runs apart
are read from it. A field that is None is chosen automatically, with its reason, when it is needed. No file is read here but those
of presets. Annotations in this module are values, not text (there is no `from __future__ import annotations`): the table is read
from them.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

from annotated_types import Interval

from unchoke.core.errors import SettingsError, UsageError
from unchoke.core.presets import load_preset
from unchoke.core.setting_values import (
    ValueParser,
    parse_class_names,
    parse_cut,
    parse_fold,
    parse_long,
    parse_memory,
    parse_names,
    parse_normalise,
    parse_several,
    parse_strides,
    parse_sums,
    parse_tile_size,
    parse_tiles,
    parse_weights,
)
from unchoke.core.units import format_count, parse_bytes
from unchoke.core.urls import refuse_secrets

if TYPE_CHECKING:
    from pydantic import TypeAdapter

HeadKind = Literal["linear", "mlp", "attention"]
FusionKind = Literal["mean", "film", "attention"]
Group = Literal["Data", "Scenes", "Frozen part", "Trained part", "Machine", "Profile"]
"""Under which heading options stand in a help text, in this order."""
ANYTHING = "any"
"""The word for no expectation: what a preset expects of the images is dropped by typing it."""
NO_GROUP = "none"
"""The word for no group: what a preset or the workspace groups by is dropped by typing it, and no column is suspected."""

TRAIN = ("fit", "train", "tune", "profile_train")
EXTRACT = (*TRAIN, "extract")
PHOTOS = (*EXTRACT, "check", "encoders", "curate")
INSPECT = ("fit", "train", "profile_train", "extract", "check", "curate")
TILE = ("tile", "profile_tile")
MASKS = ("segment_train",)
SCENES = (*TILE, *MASKS)
"""Commands that take the same options, by the names of their functions."""
MOST_COUNT = 1_000_000_000
"""What no number of steps, pixels or seconds exceeds that was meant: beyond it a slip of the finger would run for ever."""


@dataclass(frozen=True)
class Option:
    """What a setting's type and default do not say: its help, who takes it, and what becomes of it."""

    help: str
    """One or two sentences, the default left out: it is added."""
    group: Group
    commands: tuple[str, ...]
    """The functions that take it."""
    brief: str = ""
    """A few words for the short help, which leaves out settings without."""
    flag: str = ""
    """How it is typed, where that is not its own name."""
    help_for_scenes: str = ""
    """What commands about scenes say instead."""
    path: bool = False
    """Whether it may name a file or folder: from Python a `Path` will do."""
    shows_default: bool = True
    remembered: bool = True
    """Whether a workspace keeps it for the next command: what experiments vary is not kept."""
    tells_runs_apart: bool = False
    """Whether trained weights depend on it, beside the data and how it is shown, which have digests of their own."""
    networks_only: bool = False
    """Whether only training through a network looks at it."""
    heads_only: bool = False


_photos = partial(Option, group="Data", commands=PHOTOS)
_data = partial(Option, group="Data", commands=(*PHOTOS, *SCENES))
_scenes = partial(Option, group="Scenes", commands=SCENES)
_tiles = partial(Option, group="Scenes", commands=TILE)
_frozen = partial(Option, group="Frozen part", commands=(*EXTRACT, *MASKS))
_trained = partial(Option, group="Trained part", commands=(*TRAIN, *MASKS), remembered=False, tells_runs_apart=True)
_network = partial(_trained, networks_only=True)
_masks = partial(_trained, commands=MASKS)
_host = partial(Option, group="Machine")
_machine = partial(Option, group="Machine", commands=(*TRAIN, *MASKS), remembered=False, networks_only=True)
_profile = partial(Option, group="Profile", commands=("fit", "train", "profile_train", *MASKS), remembered=False)

Share = Annotated[float, Interval(ge=0, lt=1)]
Weight = Annotated[float, Interval(ge=0)]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Every option, in the order of the pipeline. The names are those of the command line. Values are checked by `validate`."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "allow_inf_nan": False}

    preset: Annotated[
        str | None,
        _data(
            "Settings that belong together, see `unchoke presets list`; what is typed wins. 'none' forgets one.",
            brief="Settings that belong together: `unchoke presets list`.",
        ),
    ] = None

    data: Annotated[
        str,
        _data(
            "Class folders, or a CSV or Parquet table; a path or a URL such as s3://bucket/photos. "
            "Left out, what this workspace was made for.",
            brief="Class folders, or a CSV or Parquet table.",
            path=True,
            help_for_scenes="Band files or multi-band files in folders, a large image, or a table; a path or a URL. "
            "Left out, what this workspace was made for.",
        ),
    ] = ""
    images: Annotated[
        tuple[str, ...],
        ValueParser(parse_several),
        _data(
            "Folder that holds the images of a table, also by URL; repeat it for several folders.",
            brief="Folder that holds the images of a table.",
            path=True,
        ),
    ] = ()
    id: Annotated[
        str | None,
        _data(
            "Column with image ids (file names with or without ending), looked up in the image folders.",
            brief="Column with image ids, looked up in the folders.",
        ),
    ] = None
    path: Annotated[
        str | None,
        _data("Column with image paths, relative to the image folders or to the table.", brief="Column with image paths."),
    ] = None
    label: Annotated[
        str | None,
        _data(
            "Column with the class of each image. Of folders: path:1 for the name of the first folder, path:2 of the second, "
            "path for all joined, name for the file's name without its number. For scenes: a label raster, a folder of them, "
            "or a column. With --multi-label, repeat it for columns of 0 and 1.",
            brief="Column with the class; of scenes, a label raster.",
            path=True,
        ),
    ] = None
    multi_label: Annotated[
        bool | None,
        _photos(
            "A photo may have several labels: cells such as a|b, or a column of 0 and 1 for each. "
            "--no-multi-label makes each combination a class.",
            commands=INSPECT,
        ),
    ] = None
    exclude: Annotated[
        tuple[str, ...],
        ValueParser(parse_several),
        _photos(
            "Photos to leave out: '*_mask.png' or 'old/*', for names or paths below DATA; repeat it for more. 'none' forgets all."
        ),
    ] = ()
    corrections: Annotated[
        str | None,
        _photos(
            "CSV file with decisions about single photos: labels, photos to drop, groups. "
            "Left out, corrections.csv in the workspace, where there is one; 'none' for no file.",
            path=True,
        ),
    ] = None
    strict: Annotated[
        bool,
        _photos(
            "Table and files must match both ways: an image without a row or class folder, or a row without an image, stops fit.",
            commands=INSPECT,
        ),
    ] = False
    drop_duplicates: Annotated[
        bool, _photos("Use only one of several photos with the same bytes and label.", commands=INSPECT)
    ] = False
    target: Annotated[
        tuple[str, ...],
        ValueParser(parse_several),
        _photos(
            "Numeric column to predict; repeat it for several. For long tables: a target name to keep.",
            brief="Numeric column to predict; repeat it for several.",
        ),
    ] = ()
    long: Annotated[
        Annotated[tuple[str, str], ValueParser(parse_long)] | None,
        _photos("NAME,VALUE columns of a table with one row per image and target."),
    ] = None
    input: Annotated[
        tuple[str, ...],
        ValueParser(parse_several),
        _photos("Numeric column the network sees beside the image (NDVI, height); repeat it for several.", tells_runs_apart=True),
    ] = ()
    group: Annotated[
        str | None,
        _data(
            "Column whose groups stay in one split: all pictures of a lesion, a patient, a plant. "
            "path:plot reads it from names like plot12; 'none' forgets it.",
            help_for_scenes="Column whose groups stay in one split: scenes of one place or day. 'none' forgets it.",
            brief="Column whose groups stay in one split, as patients.",
        ),
    ] = None
    split: Annotated[str | None, _data("Column with train, val or test. Left out, a stratified split is made and kept.")] = None
    val_share: Annotated[Share, _data("Share of the samples used to pick the best epoch or head.")] = 0.15
    test_share: Annotated[Share, _data("Share of the samples kept back for the final figures.")] = 0.15
    folds: Annotated[
        int | None, Interval(ge=2, le=MOST_COUNT), _photos("Split into K folds instead; --fold says which one is the test set.")
    ] = None
    fold: Annotated[
        int | Literal["all"],
        ValueParser(parse_fold),
        _photos("Which fold is the test set, or all: one run for each, every sample predicted once."),
    ] = 0
    fold_column: Annotated[
        str | None, _photos("Column that says each sample's fold; --fold counts its values from 0, in their order.")
    ] = None
    expect: Annotated[
        str | None, _photos("What every image should be, for instance '600x450 rgb'; 'any' drops what a preset expects.")
    ] = None
    max_failures: Annotated[
        float,
        Interval(ge=0, le=1),
        _data("Stop if a larger share of the images is missing, cannot be read, or is a copy in another split."),
    ] = 0.05
    positive: Annotated[bool, _photos("Targets are never negative: the outputs cannot be either.", tells_runs_apart=True)] = False
    sums: Annotated[
        dict[str, tuple[str, ...]],
        ValueParser(parse_sums),
        _photos(
            "NAME=A+B: this target is the sum of others and is derived, not learned; repeat it for several.",
            flag="--sum",
            tells_runs_apart=True,
        ),
    ] = field(default_factory=dict)
    target_weights: Annotated[
        dict[str, Weight],
        ValueParser(parse_weights),
        _photos(
            "NAME=W: weight of this target in loss and score; repeat it for several.",
            flag="--target-weight",
            tells_runs_apart=True,
        ),
    ] = field(default_factory=dict)

    bands: Annotated[
        tuple[str, ...],
        ValueParser(parse_names),
        _scenes(
            "Bands to use, in this order: B2,B3,B4, or repeat it. Left out, all bands every scene has.",
            brief="Bands to use, in this order: B2,B3,B4.",
        ),
    ] = ()
    grid: Annotated[str, _scenes("Pixels to work on: finest, coarsest, the name of a band, or a pixel size.")] = "finest"
    resampling: Annotated[
        Literal["nearest", "bilinear", "cubic", "average"],
        _scenes("nearest, bilinear, cubic or average: how bands come onto the grid."),
    ] = "bilinear"
    tile_size: Annotated[
        int | Literal["auto"],
        ValueParser(parse_tile_size),
        _tiles(
            "Side of a tile in pixels, or auto: near 512, in whole blocks of your files.",
            brief="Side of a tile in pixels, or auto (default 512).",
        ),
    ] = 512
    overlap: Annotated[
        int | None,
        Interval(ge=0, le=MOST_COUNT),
        _scenes(
            "Pixels that neighbouring windows share (default 0 for tiles, 64 for patches).",
            brief="Pixels that neighbouring windows share.",
            remembered=False,
        ),
    ] = None
    edges: Annotated[Literal["smaller", "padded"], _tiles("smaller or padded: windows at the right and lower edge.")] = "smaller"
    normalise: Annotated[
        Annotated[str, ValueParser(parse_normalise)] | None,
        _scenes(
            "none, max, max:sample (of a part of a large scene), percentile, percentile:2,98, a number, "
            "or B2=10000,B3=9000: what bands are divided by.",
            brief="What bands are divided by: max, percentile, a number.",
        ),
    ] = None
    mask: Annotated[
        str | None,
        _scenes(
            "Expression over bands that is true inside the mask, for instance '(B3-B5)/(B3+B5) > 0'.",
            brief="True inside the mask: '(B3-B5)/(B3+B5) > 0'.",
        ),
    ] = None
    polygons: Annotated[
        str | None,
        _scenes(
            "Vector file (GeoJSON, GeoPackage, shapefile) whose polygons are the mask.",
            brief="Vector file whose polygons are the mask.",
            path=True,
        ),
    ] = None
    polygon_class: Annotated[
        str | None, _scenes("Field of the polygons that holds their class number. Left out, every polygon is class 1.")
    ] = None
    min_valid: Annotated[
        float,
        Interval(ge=0, le=1),
        _tiles(
            "Skip tiles with a smaller share of valid pixels; 0 skips none.",
            brief="Skip tiles with fewer valid pixels than this share.",
        ),
    ] = 0.0
    compress: Annotated[
        Literal["isal", "zlib", "none"] | None,
        _tiles(
            "isal, zlib or none: how NPZ files are written (default isal).",
            brief="isal, zlib or none: how NPZ files are written.",
        ),
    ] = None
    store: Annotated[
        Literal["float32", "raw"], _tiles("float32, normalised; or raw: as the files have it, with the constants beside it.")
    ] = "float32"
    parallel: Annotated[
        Literal["threads", "processes"] | None,
        _tiles("threads or processes. Left out, threads: they share decoded blocks."),
    ] = None
    block_px: Annotated[
        int | None,
        Interval(ge=1, le=MOST_COUNT),
        _scenes("Side of the blocks that go to train, val or test as a whole. Left out, chosen from the scenes."),
    ] = None
    patch_size: Annotated[
        int | None,
        Interval(ge=32, le=4096),
        _frozen("Side of a patch in pixels (default 256).", brief="Side of a patch in pixels (default 256).", commands=MASKS),
    ] = None
    strides: Annotated[
        tuple[int, ...], ValueParser(parse_strides), _frozen("Levels of the encoder's pyramid that are kept.", commands=MASKS)
    ] = (4, 8, 16, 32)
    classes: Annotated[
        tuple[str, ...],
        ValueParser(parse_class_names),
        _scenes("Names of the classes 0, 1, …: clear,cloud, or repeat it.", brief="Names of the classes 0, 1, …: clear,cloud."),
    ] = ()
    ignore: Annotated[int | None, Interval(ge=0, le=65535), _scenes("Label value that counts as unlabelled.")] = None
    baseline: Annotated[
        str | None,
        _masks("Expression to compare with on the test pixels, true for class 1: '(b3-b6)/(b3+b6) > 0'.", tells_runs_apart=False),
    ] = None

    encoder: Annotated[
        str,
        _frozen(
            "Network: any timm model name. Left out, heads get the strongest at hand that sees all photos within a minute.",
            brief="Any timm model. Left out, it is chosen.",
            commands=(*EXTRACT, *MASKS, "curate", "budget"),
        ),
    ] = "tf_efficientnet_lite0"
    weights: Annotated[
        str | None,
        _frozen(
            "Weights file for the encoder: safetensors, or a .pt with nothing but tensors.",
            commands=(*EXTRACT, *MASKS, "curate"),
            path=True,
        ),
    ] = None
    cut: Annotated[
        str,
        ValueParser(parse_cut),
        _frozen(
            "Where the frozen part ends: blocks (all, with pooled maps of several blocks; for masks, pyramid), end (all), "
            "-4 (the last 4 blocks train), none (everything trains).",
            brief="What trains: blocks, end (heads), -4 (last), none (all).",
            commands=(*EXTRACT, *MASKS, "budget"),
            shows_default=False,
            tells_runs_apart=True,
        ),
    ] = "blocks"
    input_px: Annotated[
        int | None,
        Interval(ge=16, le=8192),
        _frozen(
            "Side of the square the network sees, in pixels. Left out, the one it was made for.",
            commands=(*EXTRACT, "budget"),
        ),
    ] = None
    streams: Annotated[
        int,
        Interval(ge=1, le=16),
        _frozen("Split each image side by side into this many streams.", commands=(*EXTRACT, "budget")),
    ] = 1
    tiles: Annotated[
        str,
        ValueParser(parse_tiles),
        _frozen("ROWSxCOLUMNS grid on each stream, every tile seen at full input size.", commands=(*EXTRACT, "budget")),
    ] = "1x1"
    views: Annotated[
        int, Interval(ge=0, le=64), _frozen("Cache K augmented views of each image as well; training draws among them.")
    ] = 0
    engine: Annotated[
        Literal["torch", "openvino"] | None,
        _frozen("torch or openvino. Left out, the fastest that agrees with float32 torch on your images."),
    ] = None
    precision: Annotated[
        Literal["f32", "bf16", "f16", "int8"] | None,
        _frozen(
            "f32, bf16, f16 or int8 for the frozen part. Left out, chosen and checked.", commands=(*EXTRACT, *MASKS, "doctor")
        ),
    ] = None
    cache: Annotated[
        Literal["ram", "disk", "none"] | None,
        _frozen(
            "ram, disk or none: where decoded images are kept with --cut none. Left out, chosen by what fits.", commands=EXTRACT
        ),
    ] = None
    device: Annotated[
        str | None,
        _host(
            "cpu, cuda, cuda:N or mps. Left out, chosen by `unchoke doctor`'s rules.",
            brief="cpu, cuda, cuda:N or mps; left out, chosen.",
            commands=(*EXTRACT, *MASKS, "encoders", "curate", "budget", "doctor"),
        ),
    ] = None
    workers: Annotated[
        int | None,
        Interval(ge=0, le=MOST_COUNT),
        _host(
            "Threads or processes that load and encode.",
            brief="Threads or processes that load and encode.",
            commands=(*EXTRACT, *SCENES, "encoders", "curate", "doctor"),
        ),
    ] = None
    on: Annotated[
        str | None,
        _host(
            "The Ray cluster that does the work: ray://HOST:10001, HOST:6379 or auto; local is this machine alone.",
            brief="A Ray cluster to run on: ray://HOST:10001, or auto.",
            commands=(*INSPECT, *SCENES, "doctor"),
            remembered=False,
        ),
    ] = None
    job_size: Annotated[int, Interval(ge=1, le=MOST_COUNT), _frozen("Images per micro-job.")] = 64

    head: Annotated[
        HeadKind | None,
        _trained(
            "linear, mlp or attention, on the frozen network. Left out, a few are tried and validation picks.",
            brief="linear, mlp or attention; left out, the best of some.",
            commands=TRAIN,
            heads_only=True,
        ),
    ] = None
    fusion: Annotated[
        FusionKind,
        _trained(
            "How tiles become one: mean, film (each tile adjusted by their mean) or attention.", commands=(*TRAIN, "budget")
        ),
    ] = "mean"
    decoder: Annotated[
        Literal["unet", "fpn"] | None,
        _masks(
            "unet or fpn, from segmentation-models-pytorch (default fpn; unet for other strides than 4,8,16,32).",
            brief="unet or fpn.",
        ),
    ] = None
    dice: Annotated[
        float | None, Interval(ge=0, le=1), _masks("Share of the Dice loss; the rest is cross-entropy (default 0.5).")
    ] = None
    epochs: Annotated[
        int,
        Interval(ge=1, le=MOST_COUNT),
        _trained("Passes over the training samples.", brief="Passes over the training samples (default 20)."),
    ] = 20
    batch_size: Annotated[
        int | None,
        Interval(ge=1, le=MOST_COUNT),
        _trained(
            "Samples per step. Left out, chosen from the size of the train split.",
            brief="Samples per step; left out, chosen.",
            commands=(*TRAIN, *MASKS, "budget"),
        ),
    ] = None
    lr: Annotated[
        float | None,
        Interval(gt=0, le=MOST_COUNT),
        _trained("Learning rate: of the head, and of the last block that trains.", brief="Learning rate; left out, chosen."),
    ] = None
    weight_decay: Annotated[float | None, Interval(ge=0, le=MOST_COUNT), _trained("AdamW weight decay.")] = None
    layer_decay: Annotated[
        float | None,
        Interval(gt=0, le=1),
        _network("Learning rate of each layer as a share of that of the layer above it, up to 1."),
    ] = None
    warmup: Annotated[
        float | None, Interval(ge=0, le=MOST_COUNT), _network("Epochs in which the learning rate rises to its full value.")
    ] = None
    ema: Annotated[
        float | None,
        Interval(ge=0, lt=1),
        _network("Decay of the running average of the weights that is evaluated and kept, 0 for none."),
    ] = None
    clip: Annotated[float | None, Interval(ge=0, le=MOST_COUNT), _network("Largest gradient norm, 0 for no limit.")] = None
    label_smoothing: Annotated[float | None, Interval(ge=0, lt=1), _trained("Label smoothing, 0 to below 1.", commands=TRAIN)] = (
        None
    )
    mixup: Annotated[
        float | None,
        Interval(ge=0, le=MOST_COUNT),
        _trained("Mixup: alpha of its beta distribution, 0 for none.", commands=TRAIN),
    ] = None
    augment: Annotated[
        Literal["none", "light", "strong"] | None,
        _trained("none, light or strong: how much images are varied with --cut none.", commands=(*TRAIN, *MASKS, "budget")),
    ] = None
    class_weights: Annotated[
        Literal["none", "gentle", "tempered", "balanced"] | None,
        _trained("none, gentle, tempered or balanced: weigh rare classes up."),
    ] = None
    batch_norm: Annotated[
        Literal["frozen", "train"] | None,
        _network("frozen or train: whether batch statistics follow your images in the part that trains."),
    ] = None
    patience: Annotated[
        int | None,
        Interval(ge=0, le=MOST_COUNT),
        _trained("Stop after this many epochs without a better validation score, 0 for never."),
    ] = None
    sweep: Annotated[
        int,
        Interval(ge=0, le=10_000),
        _trained(
            "Train this many head configurations at once and pick by validation.",
            brief="Train this many head configurations, keep the best.",
            commands=TRAIN,
            heads_only=True,
        ),
    ] = 0
    refit: Annotated[
        bool | None,
        _trained(
            "Train the best head once more on train and val together (default: yes); val figures are from before.",
            commands=TRAIN,
            heads_only=True,
        ),
    ] = None
    minutes: Annotated[
        float | None,
        Interval(gt=0, le=100_000),
        _trained(
            "Time limit: one candidate model after the other while time lasts, then a blend of them.",
            brief="How long you will wait for the best model.",
            commands=("fit", "train"),
        ),
    ] = None
    seed: Annotated[int, _trained("Seed of everything that is random.", commands=(*TRAIN, *SCENES), remembered=True)] = 0

    memory: Annotated[
        Annotated[str, ValueParser(parse_memory)] | None,
        _machine(
            "Memory that training may take, for instance 4GB; batches are measured and chosen to stay below.",
            brief="What training may take: 4GB. Batches are fitted to it.",
            commands=(*TRAIN, *MASKS, "budget"),
        ),
    ] = None
    sub_batch: Annotated[
        int | None,
        Interval(ge=1, le=MOST_COUNT),
        _machine("Samples of a micro-batch; a step accumulates the gradients of several. Left out, what fits."),
    ] = None
    eval_batch: Annotated[
        int | None, Interval(ge=1, le=MOST_COUNT), _machine("Samples at once where no gradients are needed. Left out, what fits.")
    ] = None
    grad_ckpt: Annotated[
        bool | None,
        _machine(
            "Gradient checkpointing: activations are computed twice to save memory. Left out, only where needed.",
            commands=(*TRAIN, "budget"),
        ),
    ] = None
    train_precision: Annotated[
        Literal["f32", "bf16", "f16"] | None,
        _machine(
            "f32, bf16 or f16 for the part that trains. Left out, what is safe on this device.",
            commands=(*TRAIN, *MASKS, "budget"),
            tells_runs_apart=True,
        ),
    ] = None
    compile: Annotated[
        bool | None,
        _machine("Compile the network with torch.compile. Left out, only where it repays its time.", tells_runs_apart=True),
    ] = None
    channels_last: Annotated[
        bool | None,
        _machine(
            "Channels-last memory layout. Left out, only where it is safe and faster.",
            commands=(*TRAIN, *MASKS, "budget"),
            tells_runs_apart=True,
        ),
    ] = None
    devices: Annotated[
        int | None,
        Interval(ge=1, le=1024),
        _machine("Processes that train together, one for each device. Left out, one; with --on, one on each node."),
    ] = None
    log: Annotated[
        tuple[str, ...],
        ValueParser(parse_several),
        _host(
            "Also send runs to mlflow, mlflow:URI or tensorboard; repeat it for both. It is not remembered.",
            commands=("fit", "train", *MASKS),
            remembered=False,
        ),
    ] = ()
    checkpoint_every: Annotated[
        float, Interval(ge=0, le=MOST_COUNT), _machine("Seconds between checkpoints within an epoch.")
    ] = 60.0

    profile: Annotated[
        bool,
        _profile(
            "Record the first steps with torch.profiler, into logs/profiler: traces, a page, the top operators.",
            commands=(*MASKS, "fit", "train"),
        ),
    ] = False
    profile_wait: Annotated[int, Interval(ge=0, le=MOST_COUNT), _profile("Steps to let pass before the profiler begins.")] = 1
    profile_warmup: Annotated[int, Interval(ge=0, le=MOST_COUNT), _profile("Steps in which it runs and keeps nothing.")] = 1
    profile_active: Annotated[int, Interval(ge=1, le=MOST_COUNT), _profile("Steps that are recorded.")] = 3
    profile_repeat: Annotated[int, Interval(ge=1, le=MOST_COUNT), _profile("How often, one trace each.")] = 1

    @property
    def group_column(self) -> str | None:
        """The column whose groups stay in one split, or None."""
        return None if self.group == NO_GROUP else self.group

    @property
    def test_fold(self) -> int:
        """The fold that is the test set now; with `--fold all` each becomes it in turn, beginning with the first."""
        return self.fold if isinstance(self.fold, int) else 0

    @property
    def memory_bytes(self) -> int | None:
        """The limit of `--memory`, or None where none was set."""
        return None if self.memory is None else parse_bytes(self.memory)

    def shown(self, name: str) -> Any:
        """A setting's value as it is shown to people: a sum reads as one."""
        return {total: " + ".join(parts) for total, parts in self.sums.items()} if name == "sums" else getattr(self, name)

    def given(self) -> dict[str, Any]:
        """What differs from the defaults: the part worth showing."""
        return {name: value for name, value in self.to_dict().items() if value != _DEFAULTS[name]}

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as a file holds them: lists in the place of tuples."""
        return {name: _plain(getattr(self, name)) for name in OPTIONS}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value


TYPES: dict[str, Any] = {one.name: one.type for one in fields(Settings)}
OPTIONS: dict[str, Option] = {
    name: next(one for one in hint.__metadata__ if isinstance(one, Option)) for name, hint in TYPES.items()
}
_DEFAULTS = Settings().to_dict()
_FROM_THE_END = {"streams", "tiles", "sums", "target_weights", "positive", "input"}
"""What a network of its own is trained for, on features of the encoder's end unless another cut is given."""


def settings_where(chosen: Callable[[Option], bool]) -> tuple[str, ...]:
    """The settings of which something holds, in the order of the table."""
    return tuple(name for name, option in OPTIONS.items() if chosen(option))


OF_TILES = settings_where(lambda option: set(option.commands) <= set(TILE))
"""What only cutting tiles looks at."""


def options_of(command: str) -> tuple[str, ...]:
    """The settings a command takes, by heading."""
    headings = list(get_args(Group))
    taken = settings_where(lambda option: command in option.commands)
    return tuple(sorted(taken, key=lambda name: headings.index(OPTIONS[name].group)))


def help_of(name: str, command: str) -> str:
    """What the help of a command says of a setting, its default added."""
    option, default = OPTIONS[name], _DEFAULTS[name]
    text = option.help_for_scenes if option.help_for_scenes and command in SCENES else option.help
    if not option.shows_default or default is None or default in ("", [], {}):
        return text
    shown = ",".join(map(str, default)) if isinstance(default, list) else str(default)
    if isinstance(default, bool):
        shown = "yes" if default else "no"
    elif isinstance(default, float):
        shown = f"{default:g}"
    return f"{text.removesuffix('.')} (default {shown})."


def flag(name: str) -> str:
    """How a setting is typed: `batch_size` as ``--batch-size``."""
    return OPTIONS[name].flag or "--" + name.replace("_", "-")


def flag_off(name: str) -> str:
    """The option that says no to a yes-or-no setting."""
    return "--no-" + flag(name).removeprefix("--")


def validate(values: dict[str, Any]) -> Settings:
    """`Settings` from plain values; every wrong one is listed at once."""
    from pydantic import ValidationError

    for name in (name for name, option in OPTIONS.items() if option.path):
        named = values.get(name)
        refuse_secrets(*(named if isinstance(named, list | tuple) else (named,)))
    try:
        settings = _checked().validate_python(values)
        if "cut" not in values and _FROM_THE_END & settings.given().keys():
            return replace(settings, cut="end")  # what is trained on tiles or for declared targets is a network of its own
        return settings
    except ValidationError as error:
        problems = []
        for item in error.errors():
            own = item["msg"].removeprefix("Value error, ")
            message = own if own != item["msg"] else own.lower()
            problems.append(f"{'.'.join(map(str, item['loc']))}: {message} (got {item['input']!r})")
        concerned = list(dict.fromkeys(str(item["loc"][0]) for item in error.errors()))
        names = tuple(name for name in concerned if name in OPTIONS)
        near = [next(iter(get_close_matches(name, OPTIONS, n=1)), "") for name in concerned]
        explained = " and ".join(dict.fromkeys(flag(name) if name else "every option" for name in near))
        taken = [OPTIONS[name].commands for name in names]
        command = "fit" if all("fit" in commands for commands in taken) else "segment train"
        if any(set(commands) <= set(TILE) for commands in taken):
            command = "tile"
        told = SettingsError(
            f"{format_count(len(problems), 'setting')} cannot be used: {'; '.join(problems)}",
            code="bad-settings",
            why="each option has a range that makes sense",
            try_=f"unchoke {command} --help-all, which explains {explained}",
        )
        told.names = names
        raise told from error


@cache
def _checked() -> "TypeAdapter[Settings]":
    """What checks values: pydantic is loaded here, so that a help text or a lint does without it."""
    from pydantic import TypeAdapter

    return TypeAdapter(Settings)


def explained_by(error: SettingsError, command: str) -> SettingsError:
    """The same error, pointing to the help of the command that was typed, where that has the options concerned."""
    function = command.replace(" ", "_")
    if error.names and all(function in OPTIONS[name].commands for name in error.names):
        error.try_ = re.sub(r"^unchoke .*? --help-all", f"unchoke {command} --help-all", error.try_)
    return error


def preset_values(name: str) -> dict[str, Any]:
    """What a preset sets, checked on its own so that a wrong value is blamed on the preset."""
    values = load_preset(name).values
    refuse_unknown(f"the preset {name}", set(values) - set(OPTIONS) | set(values) & {"preset", "data"})
    try:
        validate(values)
    except UsageError as error:
        told = SettingsError(f"the preset {name}: {error.what}", code=error.code, why=error.why, try_=error.try_)
        told.names = getattr(error, "names", ())
        raise told from error
    return values


def as_text(value: Any) -> Any:
    """Paths, alone or in a list, as the text the command line would have given."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (list, tuple)):
        return tuple(as_text(item) for item in value)
    return value


def refuse_unknown(place: str, unknown: set[str]) -> None:
    if unknown:
        raise UsageError(
            f"{place} has unknown settings: {', '.join(sorted(unknown))}",
            code="unknown-settings",
            why="a misspelt setting would be ignored in silence",
            try_=f"remove or correct them; known are {', '.join(sorted(OPTIONS))}",
        )


def as_options(settings: Settings) -> list[str]:
    """The words that give these settings after `unchoke fit DATA`: the preset, and what differs from it and from the defaults."""
    return [word for name, value in differing(settings).items() if name != "data" for word in _words(name, value)]


def typed_options(typed: dict[str, Any]) -> list[str]:
    """The words that give these values after `unchoke fit`: DATA first where it is among them; what is None was not typed."""
    given = {name: as_text(value) for name, value in typed.items() if value is not None and value not in ((), [], {})}
    data = [str(given.pop("data"))] if "data" in given else []
    return data + [word for name, value in given.items() for word in _words(name, value)]


def _words(name: str, value: Any) -> list[str]:
    typed = flag(name)
    if isinstance(value, bool):
        return [typed if value else flag_off(name)]
    if name == "long" and not isinstance(value, str):
        return [typed, ",".join(value)]
    if name == "sums" and isinstance(value, dict):
        return [word for total, parts in value.items() for word in (typed, f"{total}={'+'.join(parts)}")]
    if isinstance(value, dict):
        return [word for key, item in value.items() for word in (typed, f"{key}={item}")]
    return [word for item in (value if isinstance(value, list | tuple) else [value]) for word in (typed, str(item))]


def differing(settings: Settings) -> dict[str, Any]:
    """What must be said for the same settings to come about: all that differs from the preset over the defaults."""
    base = Settings() if settings.preset is None else validate(preset_values(settings.preset))
    default = base.to_dict()
    return {name: value for name, value in settings.to_dict().items() if value is not None and value != default[name]}
