"""What the user asked for, remembered in `unchoke.toml` of the workspace.

In: what was typed, and what the workspace remembers. Out: one frozen `Settings`. A field that is None is chosen automatically,
with its reason, when it is needed. Reading and writing the file is all the disk work done here.
"""

from __future__ import annotations

import os
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from unchoke import atomic
from unchoke.errors import UsageError
from unchoke.units import format_count
from unchoke.workspace import Workspace

HeadKind = Literal["linear", "mlp", "attention"]
TRAINED_PART = (
    *("head", "epochs", "batch_size", "lr", "weight_decay", "label_smoothing"),
    *("mixup", "class_weights", "patience", "sweep"),
)


class Settings(BaseModel):
    """Every option of `fit`, in the order of the pipeline. The names are those of the command line."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: str = ""
    images: tuple[str, ...] = ()
    id: str | None = None
    path: str | None = None
    label: str | None = None
    target: tuple[str, ...] = ()
    group: str | None = None
    split: str | None = None
    long: tuple[str, str] | None = None
    val_share: float = Field(default=0.15, ge=0, lt=1)
    test_share: float = Field(default=0.15, ge=0, lt=1)
    folds: int | None = Field(default=None, ge=2)
    fold: int = Field(default=0, ge=0)
    expect: str | None = None
    max_failures: float = Field(default=0.05, ge=0, le=1)

    encoder: str = "tf_efficientnet_lite0"
    weights: str | None = None
    cut: str = "end"
    views: int = Field(default=0, ge=0, le=64)
    engine: Literal["torch", "openvino"] | None = None
    precision: Literal["f32", "bf16", "f16", "int8"] | None = None
    device: str | None = None
    workers: int | None = Field(default=None, ge=0)
    job_size: int = Field(default=64, ge=1)

    head: HeadKind | None = None
    epochs: int = Field(default=20, ge=1)
    batch_size: int | None = Field(default=None, ge=1)
    lr: float | None = Field(default=None, gt=0)
    weight_decay: float | None = Field(default=None, ge=0)
    label_smoothing: float | None = Field(default=None, ge=0, lt=1)
    mixup: float | None = Field(default=None, ge=0)
    class_weights: Literal["none", "tempered", "balanced"] | None = None
    patience: int | None = Field(default=None, ge=0)
    sweep: int = Field(default=0, ge=0)
    seed: int = 0

    def given(self) -> dict[str, Any]:
        """What differs from the defaults: the part worth remembering and showing."""
        return self.model_dump(mode="json", exclude_defaults=True)


def resolve_settings(workspace: Workspace, typed: dict[str, Any]) -> tuple[Settings, list[str]]:
    """What was typed over what the workspace remembers over the defaults; also the names of the remembered settings in force.

    Remembered settings only apply to the same DATA: pointing a workspace at other data starts from the defaults.
    """
    typed = {name: _as_text(value) for name, value in typed.items() if value is not None and value != ()}
    remembered = load_remembered(workspace)
    if "data" in typed and not _same_path(typed["data"], remembered.get("data", "")):
        remembered = {}
    in_force = [name for name in remembered if name not in typed and name != "data"]
    return validate({**remembered, **typed}), in_force


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
            f"{'.'.join(map(str, item['loc']))}: {item['msg'].lower()} (got {item['input']!r})" for item in error.errors()
        ]
        raise UsageError(
            f"{format_count(len(problems), 'setting')} cannot be used: {'; '.join(problems)}",
            why="each option has a range that makes sense",
            try_=f"unchoke fit --help, which explains {_options(error)}",
        ) from error


def _options(error: ValidationError) -> str:
    """The options concerned as they are typed; an unknown one gives the nearest that exists."""
    names = dict.fromkeys(str(item["loc"][0]) for item in error.errors())
    known = [next(iter(get_close_matches(name, Settings.model_fields, n=1)), "every option") for name in names]
    return " and ".join(name if " " in name else "--" + name.replace("_", "-") for name in dict.fromkeys(known))


def load_remembered(workspace: Workspace) -> dict[str, Any]:
    """The content of `unchoke.toml`, or nothing if the workspace is new."""
    file = workspace.settings_file
    try:
        loaded = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read", why=str(error), try_=f"mend the line, or delete {file.name}") from error
    unknown = sorted(set(loaded) - set(Settings.model_fields))
    if unknown:
        raise UsageError(
            f"{file} has settings nobody knows: {', '.join(unknown)}",
            why="a misspelt setting would be ignored in silence",
            try_=f"remove or correct them; known are {', '.join(sorted(Settings.model_fields))}",
        )
    return loaded


def remember(workspace: Workspace, settings: Settings) -> None:
    """Write what describes the data and the frozen part to `unchoke.toml`.

    Options of the trained part are what experiments vary: each run's record keeps its own, and they are only remembered if
    someone wrote them into the file by hand.
    """
    import tomli_w

    by_hand = load_remembered(workspace)
    kept = {name: value for name, value in settings.given().items() if name not in TRAINED_PART or name in by_hand}
    about = "# What this workspace remembers of its data and frozen part; typed options override it.\n"
    atomic.write_text(workspace.settings_file, about + tomli_w.dumps(kept))
