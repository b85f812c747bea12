"""What the user asked for, remembered in `unchoke.toml` of the workspace.

In: what was typed, a preset, and what the workspace remembers. Out: one frozen `Settings`. A field that is None is chosen
automatically, with its reason, when it is needed. Reading and writing the file is all the disk work done here. What `tune` found
stands in the same file, in the table `[tuned]`: it is no setting, is kept when settings change, and is read by `core/tuned.py`.

What wins: typed, then a preset typed with it, then what is remembered, then a preset that is remembered, then the default. What
describes the data (columns, inputs, sums, weights, splits) and the frozen part (encoder, cut, tiles, views, cache) is remembered,
beside the name of a preset; the trained part (`TRAINED_PART`) is what experiments vary and is not, unless someone wrote it into
the file by hand.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from unchoke.core import atomic
from unchoke.core.errors import UsageError
from unchoke.core.flags import option, switched_off
from unchoke.core.presets import load_preset
from unchoke.core.units import format_count, parse_bytes
from unchoke.core.workspace import Workspace

HeadKind = Literal["linear", "mlp", "attention"]
FusionKind = Literal["mean", "film", "attention"]
NO_PRESET = "none"
SMALLEST_TILE_PX, LARGEST_TILE_PX = 16, 16384
OF_TILES = ("tile_size", "edges", "min_valid", "compress", "store", "parallel")
OF_SCENES = (
    *("bands", "grid", "resampling", "overlap", "normalise", "mask", "polygons", "polygon_class", "block_px"),
    *("patch_size", "strides", "classes", "ignore", "baseline", "decoder", "dice"),
)
"""Settings that only `tile`, and only commands about scenes, have."""
ANYTHING = "any"
"""The word for no expectation: what a preset expects of the images is dropped by typing it."""
TRAINED_PART = (
    *("head", "fusion", "decoder", "dice", "epochs", "batch_size", "lr", "weight_decay", "layer_decay", "warmup", "ema", "clip"),
    *("label_smoothing", "mixup", "augment", "class_weights", "batch_norm", "patience", "sweep"),
    *("memory", "sub_batch", "eval_batch", "grad_ckpt", "train_precision", "compile", "channels_last"),
    *("devices", "checkpoint_every"),
)
_ABOUT = "# What this workspace remembers of its data and frozen part; typed options override it.\n"
TUNED = "tuned"
_TUNED_ABOUT = "# What `unchoke tune` tried on this machine, and what came of it; typed options override it.\n"
PROFILED = ("profile", "profile_wait", "profile_warmup", "profile_active", "profile_repeat")
"""What is recorded of a training by the way: neither the result nor which run it is depends on these."""
NOT_REMEMBERED = (*TRAINED_PART, *PROFILED, "overlap", "baseline")
"""What experiments vary, what is recorded by the way, and how far windows overlap: one thing for tiles, another for patches."""


def _fold(value: Any) -> Any:
    """A number, typed or written, or the word `all`."""
    text = str(value).strip().lower()
    if text != "all" and not re.fullmatch(r"[0-9]+", text):
        raise ValueError("should be the number of a fold, counted from 0, or the word all")
    return text if text == "all" else int(text)


def _cut(value: Any) -> str:
    """`end`, `none` or a negative number, which a file may hold as a number; for masks `pyramid`, which is their `end`."""
    text = str(value).strip().lower()
    if not re.fullmatch(r"end|pyramid|none|-[1-9][0-9]*", text):
        raise ValueError("should be end, none, or -k to train the last k blocks, for instance -4")
    return text


def _tiles(value: Any) -> str:
    match = re.fullmatch(r"([1-9][0-9]?)[x×]([1-9][0-9]?)", str(value).strip().lower())
    if match is None:
        raise ValueError("should be ROWSxCOLUMNS, for instance 2x2")
    return f"{match[1]}x{match[2]}"


def _memory(value: Any) -> str:
    """A size as it was written, once it can be read."""
    text = str(value).strip()
    try:
        num_bytes = parse_bytes(text)
    except UsageError as error:
        raise ValueError("should be a size like 4GB or 3.2GiB") from error
    if num_bytes < 1:
        raise ValueError("should be more than nothing")
    return text


def _sums(value: Any) -> Any:
    """``NAME=A+B``, one or several of them, as a table; a table stays one."""
    if isinstance(value, str | Sequence):
        pairs = [_pair(text, "NAME=A+B", last=False) for text in _texts(value)]
        value = {name: [part.strip() for part in parts.split("+")] for name, parts in pairs}
    if isinstance(value, dict) and not all(name and parts and all(parts) for name, parts in value.items()):
        raise ValueError("every sum needs a name and the names of its parts, NAME=A+B")
    return value


def _weights(value: Any) -> Any:
    """``NAME=W``, one or several of them, as a table; a table stays one."""
    return dict(_pair(text, "NAME=WEIGHT", last=True) for text in _texts(value)) if isinstance(value, str | Sequence) else value


def _texts(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [str(item) for item in value]


def _pair(text: str, form: str, *, last: bool) -> tuple[str, str]:
    name, sign, rest = text.rpartition("=") if last else text.partition("=")
    if not (sign and name.strip() and rest.strip()):
        raise ValueError(f"should look like {form}")
    return name.strip(), rest.strip()


def _tile_size(value: Any) -> Any:
    """A number of pixels, or the word `auto`."""
    text = str(value).strip().lower()
    if text == "auto":
        return text
    if not re.fullmatch(r"[0-9]+", text) or not SMALLEST_TILE_PX <= int(text) <= LARGEST_TILE_PX:
        raise ValueError(f"should be a number of pixels from {SMALLEST_TILE_PX} to {LARGEST_TILE_PX}, or the word auto")
    return int(text)


def _names(value: Any) -> Any:
    """``B2,B3`` typed once, or once for each."""
    return tuple(part.strip() for text in _texts(value) for part in text.split(",") if part.strip())


def _strides(value: Any) -> Any:
    """``4,8,16,32``, or a list of numbers: ascending powers of two."""
    parts = value.replace("/", ",").split(",") if isinstance(value, str) else list(value)
    strides = tuple(int(part) for part in parts if str(part).strip().isdigit())
    if len(strides) != len(parts) or sorted(set(strides)) != list(strides) or any(one < 1 or one & (one - 1) for one in strides):
        raise ValueError("should be ascending powers of two, for instance 4,8,16,32")
    return strides


def _normalise(value: Any) -> str:
    """`none`, `max`, `percentile`, `percentile:LOW,HIGH`, a number, or NAME=NUMBER for each band."""
    text = str(value).strip()
    number = r"[0-9]+(?:\.[0-9]+)?"
    forms = rf"none|max|percentile(?::{number},{number})?|{number}|[^=,]+={number}(?:,[^=,]+={number})*"
    if not re.fullmatch(forms, text):
        raise ValueError("should be none, max, percentile, percentile:2,98, a number like 10000, or B2=10000,B3=9000")
    return text


Share = Annotated[float, Field(ge=0, lt=1)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Settings(BaseModel):
    """Every option of `fit`, in the order of the pipeline. The names are those of the command line."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    preset: str | None = None

    data: str = ""
    images: tuple[str, ...] = ()
    id: str | None = None
    path: str | None = None
    label: str | None = None
    target: tuple[str, ...] = ()
    long: tuple[str, str] | None = None
    input: tuple[str, ...] = ()
    group: str | None = None
    split: str | None = None
    val_share: Share = 0.15
    test_share: Share = 0.15
    folds: int | None = Field(default=None, ge=2)
    fold: Annotated[int | Literal["all"], BeforeValidator(_fold)] = 0
    expect: str | None = None
    max_failures: float = Field(default=0.05, ge=0, le=1)
    positive: bool = False
    sums: Annotated[dict[str, tuple[str, ...]], BeforeValidator(_sums)] = Field(default_factory=dict)
    target_weights: Annotated[dict[str, Weight], BeforeValidator(_weights)] = Field(default_factory=dict)

    bands: Annotated[tuple[str, ...], BeforeValidator(_names)] = ()
    grid: str = "finest"
    resampling: Literal["nearest", "bilinear", "cubic", "average"] = "bilinear"
    tile_size: Annotated[int | Literal["auto"], BeforeValidator(_tile_size)] = 512
    overlap: int | None = Field(default=None, ge=0)
    edges: Literal["smaller", "padded"] = "smaller"
    normalise: Annotated[str, BeforeValidator(_normalise)] | None = None
    mask: str | None = None
    polygons: str | None = None
    polygon_class: str | None = None
    min_valid: float = Field(default=0.0, ge=0, le=1)
    compress: Literal["isal", "zlib", "none"] | None = None
    store: Literal["float32", "raw"] = "float32"
    parallel: Literal["threads", "processes"] | None = None
    block_px: int | None = Field(default=None, ge=1)
    patch_size: int | None = Field(default=None, ge=32, le=4096)
    strides: Annotated[tuple[int, ...], BeforeValidator(_strides)] = (4, 8, 16, 32)
    classes: Annotated[tuple[str, ...], BeforeValidator(_names)] = ()
    ignore: int | None = Field(default=None, ge=0, le=65535)
    baseline: str | None = None

    encoder: str = "tf_efficientnet_lite0"
    weights: str | None = None
    cut: Annotated[str, BeforeValidator(_cut)] = "end"
    input_px: int | None = Field(default=None, ge=16, le=8192)
    streams: int = Field(default=1, ge=1, le=16)
    tiles: Annotated[str, BeforeValidator(_tiles)] = "1x1"
    views: int = Field(default=0, ge=0, le=64)
    engine: Literal["torch", "openvino"] | None = None
    precision: Literal["f32", "bf16", "f16", "int8"] | None = None
    cache: Literal["ram", "disk", "none"] | None = None
    device: str | None = None
    workers: int | None = Field(default=None, ge=0)
    job_size: int = Field(default=64, ge=1)

    head: HeadKind | None = None
    fusion: FusionKind = "mean"
    decoder: Literal["unet", "fpn"] | None = None
    dice: float | None = Field(default=None, ge=0, le=1)
    epochs: int = Field(default=20, ge=1)
    batch_size: int | None = Field(default=None, ge=1)
    lr: float | None = Field(default=None, gt=0)
    weight_decay: float | None = Field(default=None, ge=0)
    layer_decay: float | None = Field(default=None, gt=0, le=1)
    warmup: float | None = Field(default=None, ge=0)
    ema: float | None = Field(default=None, ge=0, lt=1)
    clip: float | None = Field(default=None, ge=0)
    label_smoothing: float | None = Field(default=None, ge=0, lt=1)
    mixup: float | None = Field(default=None, ge=0)
    augment: Literal["none", "light", "strong"] | None = None
    class_weights: Literal["none", "tempered", "balanced"] | None = None
    batch_norm: Literal["frozen", "train"] | None = None
    patience: int | None = Field(default=None, ge=0)
    sweep: int = Field(default=0, ge=0)
    seed: int = 0

    memory: Annotated[str, BeforeValidator(_memory)] | None = None
    sub_batch: int | None = Field(default=None, ge=1)
    eval_batch: int | None = Field(default=None, ge=1)
    grad_ckpt: bool | None = None
    train_precision: Literal["f32", "bf16", "f16"] | None = None
    compile: bool | None = None
    channels_last: bool | None = None
    devices: int = Field(default=1, ge=1)
    checkpoint_every: float = Field(default=60.0, ge=0)

    profile: bool = False
    profile_wait: int = Field(default=1, ge=0)
    profile_warmup: int = Field(default=1, ge=0)
    profile_active: int = Field(default=3, ge=1)
    profile_repeat: int = Field(default=1, ge=1)

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
        return self.model_dump(mode="json", exclude_defaults=True)


def resolve_settings(workspace: Workspace, typed: dict[str, Any]) -> tuple[Settings, dict[str, str]]:
    """The settings in force; also where those come from that were not typed, name to reason.

    Remembered settings only apply to the same DATA: pointing a workspace at other data starts from the defaults.
    """
    typed = {name: _as_text(value) for name, value in typed.items() if value is not None and value not in ((), [], {})}
    remembered = _remembered_for(workspace, typed.get("data"))
    layers = _layers(typed, remembered, workspace.settings_file.name)
    values: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for layer, reason in layers:
        values |= layer
        reasons |= dict.fromkeys(layer, reason)
    if values.get("preset") == NO_PRESET:
        del values["preset"]
    return validate(values), {name: reason for name, reason in reasons.items() if reason and name != "data"}


def _layers(typed: dict[str, Any], remembered: dict[str, Any], file: str) -> list[tuple[dict[str, Any], str]]:
    """Values with the reason to give for them, the weakest first; nothing need be said of what was typed."""
    kept = (remembered, f"remembered in {file}")
    given = (typed, "")
    name = typed.get("preset", remembered.get("preset"))
    if name is None or name == NO_PRESET:
        return [kept, given]
    preset = (_preset_values(name), f"preset {name}")
    return [kept, preset, given] if "preset" in typed else [preset, kept, given]


def _preset_values(name: str) -> dict[str, Any]:
    """What a preset sets, checked on its own so that a wrong value is blamed on the preset."""
    values = load_preset(name).values
    _refuse_unknown(f"the preset {name}", set(values) - set(Settings.model_fields) | set(values) & {"preset", "data"})
    try:
        validate(values)
    except UsageError as error:
        raise UsageError(f"the preset {name}: {error.what}", why=error.why, try_=error.try_) from error
    return values


def _as_text(value: Any) -> Any:
    """Paths, alone or in a list, as the text the command line would have given."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (list, tuple)):
        return tuple(_as_text(item) for item in value)
    return value


def _same_path(typed: Any, remembered: str) -> bool:
    """`photos/` is `photos`: completion adds the slash."""
    return isinstance(typed, str) and bool(remembered) and Path(typed) == Path(remembered)


def validate(values: dict[str, Any]) -> Settings:
    """`Settings` from plain values; every wrong one is listed at once."""
    try:
        return Settings(**values)
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, item['loc']))}: {_sentence(item['msg'])} (got {item['input']!r})" for item in error.errors()
        ]
        raise UsageError(
            f"{format_count(len(problems), 'setting')} cannot be used: {'; '.join(problems)}",
            why="each option has a range that makes sense",
            try_=f"unchoke {_explaining(error)} --help, which explains {_named(error)}",
        ) from error


def _sentence(message: str) -> str:
    own = message.removeprefix("Value error, ")
    return own if own != message else message.lower()


def _explaining(error: ValidationError) -> str:
    """The command whose help has the options concerned."""
    names = {str(item["loc"][0]) for item in error.errors()}
    if names & set(OF_TILES):
        return "tile"
    return "segment train" if names & set(OF_SCENES) else "fit"


def _named(error: ValidationError) -> str:
    """The options concerned as they are typed; an unknown one gives the nearest that exists."""
    names = dict.fromkeys(str(item["loc"][0]) for item in error.errors())
    known = [next(iter(get_close_matches(name, Settings.model_fields, n=1)), "every option") for name in names]
    return " and ".join(name if " " in name else option(name) for name in dict.fromkeys(known))


def as_options(settings: Settings) -> list[str]:
    """The words that give these settings after `unchoke fit DATA`: the preset, and what differs from it and from the defaults."""
    words: list[str] = []
    for name, value in _differing(settings).items():
        if name != "data":
            words += _words(name, value)
    return words


def typed_options(typed: dict[str, Any]) -> list[str]:
    """The words that give these values after `unchoke fit`: DATA first where it is among them; what is None was not typed."""
    given = {name: _as_text(value) for name, value in typed.items() if value is not None and value not in ((), [], {})}
    data = [str(given.pop("data"))] if "data" in given else []
    return data + [word for name, value in given.items() for word in _words(name, value)]


def _words(name: str, value: Any) -> list[str]:
    flag = option(name)
    if isinstance(value, bool):
        return [flag if value else switched_off(name)]
    if name == "long" and not isinstance(value, str):
        return [flag, ",".join(value)]
    if name == "sums" and isinstance(value, dict):
        return [word for total, parts in value.items() for word in (flag, f"{total}={'+'.join(parts)}")]
    if isinstance(value, dict):
        return [word for key, item in value.items() for word in (flag, f"{key}={item}")]
    return [word for item in (value if isinstance(value, list | tuple) else [value]) for word in (flag, str(item))]


def _differing(settings: Settings) -> dict[str, Any]:
    """What must be said for the same settings to come about: all that differs from the preset over the defaults."""
    base = Settings() if settings.preset is None else validate(_preset_values(settings.preset))
    default = base.model_dump(mode="json")
    return {name: value for name, value in settings.model_dump(mode="json", exclude_none=True).items() if value != default[name]}


def load_remembered(workspace: Workspace) -> dict[str, Any]:
    """The settings in `unchoke.toml`, or nothing if the workspace is new."""
    return {name: value for name, value in _load_file(workspace).items() if name != TUNED}


def load_tuned(workspace: Workspace) -> dict[str, Any]:
    """The table `[tuned]` of `unchoke.toml`, as it is written; empty where nothing was tuned."""
    found: dict[str, Any] = _load_file(workspace).get(TUNED, {})
    return found


def save_tuned(workspace: Workspace, table: dict[str, Any]) -> None:
    """Put `table` in the place of `[tuned]`; what stands before it stays as it is, with its comments."""
    atomic.write_text(workspace.settings_file, _settings_text(workspace) + _tuned_text(table))


def _settings_text(workspace: Workspace) -> str:
    """The file as far as it is about settings: as it was written, where `[tuned]` comes last in it, as we write it."""
    import tomli_w

    settings = load_remembered(workspace)
    file = workspace.settings_file
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    head = re.split(rf"^(?:\[{TUNED}\b|{re.escape(_TUNED_ABOUT)})", text, maxsplit=1, flags=re.MULTILINE)[0].rstrip()
    try:
        unchanged = tomllib.loads(head) == settings
    except tomllib.TOMLDecodeError:
        unchanged = False
    return (head if unchanged else _ABOUT + tomli_w.dumps(settings).rstrip()) + "\n"


def _tuned_text(table: dict[str, Any]) -> str:
    import tomli_w

    return f"\n{_TUNED_ABOUT}{tomli_w.dumps({TUNED: table})}" if table else ""


def _load_file(workspace: Workspace) -> dict[str, Any]:
    """Everything in `unchoke.toml`; what nobody knows is refused."""
    file = workspace.settings_file
    try:
        loaded = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read", why=str(error), try_=f"mend the line, or delete {file.name}") from error
    _refuse_unknown(str(file), set(loaded) - {*Settings.model_fields, TUNED})
    if not isinstance(loaded.get(TUNED, {}), dict):
        raise UsageError(f"{TUNED} in {file} is not a table", why="`unchoke tune` writes one", try_=f"remove the line of {TUNED}")
    return loaded


def _refuse_unknown(place: str, unknown: set[str]) -> None:
    if unknown:
        raise UsageError(
            f"{place} has settings nobody knows: {', '.join(sorted(unknown))}",
            why="a misspelt setting would be ignored in silence",
            try_=f"remove or correct them; known are {', '.join(sorted(Settings.model_fields))}",
        )


def _remembered_for(workspace: Workspace, data: Any) -> dict[str, Any]:
    """What is remembered of this DATA (None: of whichever it is)."""
    remembered = load_remembered(workspace)
    return remembered if data is None or _same_path(data, remembered.get("data", "")) else {}


def remember(workspace: Workspace, settings: Settings) -> None:
    """Write what describes the data and the frozen part to `unchoke.toml`, beside the name of the preset.

    Options of the trained part are what experiments vary: each run's record keeps its own, and those that someone wrote into the
    file by hand stay as they are. A file that says all this already is left alone, with its comments.
    """
    import tomli_w

    before = _remembered_for(workspace, settings.data)
    differing = _differing(settings)
    current = settings.model_dump(mode="json", exclude_none=True)
    kept = {
        name: before[name] if name in NOT_REMEMBERED else value
        for name, value in current.items()
        if name in before or (name in differing and name not in NOT_REMEMBERED)
    }
    if before and kept == _plain(before):
        return
    atomic.write_text(workspace.settings_file, _ABOUT + tomli_w.dumps(kept) + _tuned_text(load_tuned(workspace)))


def _plain(written: dict[str, Any]) -> dict[str, Any]:
    """Values of a file in the form `remember` would write them; those of the trained part are written as they were."""
    read = validate(written).model_dump(mode="json")
    return {name: value if name in NOT_REMEMBERED else read[name] for name, value in written.items()}
