"""What a workspace remembers: `unchoke.toml`, and which of typed, preset, remembered and default wins.

In: what was typed, a preset, and what the workspace remembers. Out: one frozen `Settings`, and for each value that was not typed
where it comes from. What `tune` found stands in the same file, in the table `[tuned]`: it is no setting, is kept when settings
change, and is read by `core/tuned.py`. Paths in it count from the folder that the workspace lies in, or else are absolute.

What wins: typed, then a preset typed with it, then what is remembered, then a preset that is remembered, then the default. What
describes the data (columns, inputs, sums, weights, splits) and the frozen part (encoder, cut, tiles, views, cache) is remembered,
beside the name of a preset; the trained part is what experiments vary and is not, unless someone wrote it into the file by hand.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from unchoke.core import atomic
from unchoke.core.addresses import settle_addresses
from unchoke.core.errors import UsageError, list_some
from unchoke.core.input_file import read_toml
from unchoke.core.settings import OPTIONS, Settings, as_text, differing, preset_values, refuse_unknown, validate
from unchoke.core.urls import is_url
from unchoke.core.workspace import Workspace, out_option

NO_PRESET = "none"
DIVIDING = ("split", "folds", "fold_column")
"""Ways to divide the samples of which one excludes the others: one that is typed takes the place of what was remembered."""
TUNED = "tuned"
_PLACES = ("data", "images", "corrections", "polygons", "weights")
"""Settings that name files and folders and nothing else: `label` may be a column."""
_ABOUT = "# What this workspace remembers of its data and frozen part; typed options override it.\n"
_TUNED_ABOUT = "# What `unchoke tune` tried on this machine, and what came of it; typed options override it.\n"


def resolve_settings(workspace: Workspace, typed: dict[str, Any]) -> tuple[Settings, dict[str, str]]:
    """The settings in force; also where those come from that were not typed, name to reason.

    Remembered settings only apply to the same DATA: pointing a workspace at other data starts from the defaults.
    """
    typed = {name: as_text(value) for name, value in typed.items() if value is not None and value not in ((), [], {})}
    for item in (item for value in typed.values() for item in (value if isinstance(value, tuple) else (value,))):
        if isinstance(item, str) and atomic.valid_text(item) != item:
            raise UsageError(
                f"{atomic.valid_text(item)} has a name that is not UTF-8",
                code="name-not-utf8",
                why="a workspace remembers what it was made from, and cannot write such a name down",
                try_="rename it (convmv does so for a whole tree), then give the new name",
            )
    outdone = DIVIDING if any(name in typed for name in DIVIDING) else ()
    remembered = _remembered_for(workspace, typed.get("data"))
    if isinstance(typed.get("label"), tuple):
        typed |= _settle_labels(typed.pop("label"), typed, several=typed.get("multi_label", remembered.get("multi_label")))
    settle_addresses(typed, remembered, file=workspace.settings_file, out=out_option(workspace.root))
    kept = (
        {name: value for name, value in remembered.items() if name not in outdone},
        f"remembered in {workspace.settings_file.name}",
    )
    layers = [kept]
    name = typed.get("preset", remembered.get("preset"))
    if name is not None and name != NO_PRESET:
        preset = ({one: value for one, value in preset_values(name).items() if one not in outdone}, f"preset {name}")
        layers = [kept, preset] if "preset" in typed else [preset, kept]
    values: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for layer, reason in layers:
        values |= layer
        reasons |= dict.fromkeys(layer, reason)
    values |= typed
    if values.get("preset") == NO_PRESET:
        del values["preset"]
    return validate(values), {name: reason for name, reason in reasons.items() if name not in typed and name != "data"}


def _settle_labels(names: tuple[str, ...], typed: dict[str, Any], *, several: bool | None) -> dict[str, Any]:
    """What --label names: one column, or, with --multi-label, a column of 0 and 1 for each label, as --target names them."""
    if len(names) == 1:
        return {"label": names[0]}
    if several and not typed.get("target"):
        return {"target": names}
    raise UsageError(
        f"--label was given {len(names)} times: {list_some(names)}",
        code="several-label-columns",
        why="a class is read from one column; several columns of 0 and 1 are several labels of a photo",
        try_="--multi-label, where each column says 0 or 1; else name one column",
    )


def load_remembered(workspace: Workspace) -> dict[str, Any]:
    """The settings in `unchoke.toml`, or nothing if the workspace is new. Places are named so that they are found from here."""
    from_here = partial(place_from_here, workspace)
    return {name: _map_places(name, value, from_here) for name, value in _read(workspace)[1].items()}


def place_from_here(workspace: Workspace, named: str) -> str:
    """What the file calls a place, as it is found from here; unchanged where nothing of that name is there."""
    home = _home(workspace)
    if not named or home == Path.cwd() or is_url(named) or Path(named).is_absolute() or not (home / named).exists():
        return named
    return str(home / named)


def _home(workspace: Workspace) -> Path:
    """The folder that paths in `unchoke.toml` count from: where the workspace lies, which is where most are typed."""
    return workspace.root.absolute().parent.resolve()


def _map_places(name: str, value: Any, change: Callable[[str], str]) -> Any:
    """A value with `change` made to each place that it names."""
    if name not in _PLACES:
        return value
    if isinstance(value, list | tuple):
        return [change(one) if isinstance(one, str) else one for one in value]
    return change(value) if isinstance(value, str) and value else value


def _absolute(named: str) -> str:
    return named if is_url(named) else str(Path(named).resolve())


def _from_anywhere(named: str) -> str:
    return str(Path(named).absolute()) if not is_url(named) and Path(named).exists() else named


def load_tuned(workspace: Workspace) -> dict[str, Any]:
    """The table `[tuned]` of `unchoke.toml`, as it is written; empty where nothing was tuned."""
    return _read(workspace)[2]


def save_tuned(workspace: Workspace, table: dict[str, Any]) -> None:
    """Put `table` in the place of `[tuned]`; what stands before it stays as it is, with its comments."""
    import tomli_w

    text, settings, _ = _read(workspace)
    # As we write it, `[tuned]` comes last.
    head = re.split(rf"^(?:\[{TUNED}\b|{re.escape(_TUNED_ABOUT)})", text, maxsplit=1, flags=re.MULTILINE)[0].rstrip()
    with suppress(tomllib.TOMLDecodeError):
        if tomllib.loads(head) != settings:
            head = _ABOUT + tomli_w.dumps(settings).rstrip()
    atomic.write_text(workspace.settings_file, f"{head}\n{_tuned_text(table)}")


def _tuned_text(table: dict[str, Any]) -> str:
    import tomli_w

    return f"\n{_TUNED_ABOUT}{tomli_w.dumps({TUNED: table})}" if table else ""


def _read(workspace: Workspace) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The text of `unchoke.toml`, the settings in it as they are written, and its table `[tuned]`; unknown names are refused."""
    file = workspace.settings_file
    try:
        text, settings = read_toml(file, what=str(file), try_=f"mend the line, or delete {file.name}")
    except FileNotFoundError:
        return "", {}, {}
    tuned = settings.pop(TUNED, {})
    refuse_unknown(str(file), set(settings) - {*OPTIONS})
    if not isinstance(tuned, dict):
        raise UsageError(
            f"{TUNED} in {file} is not a table",
            code="bad-tuned-table",
            why="`unchoke tune` writes one",
            try_=f"remove the line of {TUNED}",
        )
    return text, settings, tuned


def _remembered_for(workspace: Workspace, data: Any) -> dict[str, Any]:
    """What is remembered of this DATA (None: of whichever it is); `photos/` is `photos`, since completion adds the slash."""
    remembered = load_remembered(workspace)
    known = remembered.get("data", "")
    if data is None or (isinstance(data, str) and known and _absolute(data) == _absolute(str(known))):
        return remembered
    return {}


def remember(workspace: Workspace, settings: Settings) -> None:
    """Write what describes the data and the frozen part to `unchoke.toml`, beside the name of the preset.

    Options of the trained part are what experiments vary: each run's record keeps its own, and those that someone wrote into the
    file by hand stay as they are. A file that says all this already is left alone, with its comments.
    """
    import tomli_w

    before = _remembered_for(workspace, settings.data)
    said = differing(settings)
    current = {name: value for name, value in settings.to_dict().items() if value is not None}
    kept = {
        name: before[name] if not OPTIONS[name].remembered else value
        for name, value in current.items()
        if name in before or (name in said and OPTIONS[name].remembered)
    }
    as_written = validate(before).to_dict() if before else {}
    plain = {name: value if not OPTIONS[name].remembered else as_written[name] for name, value in before.items()}
    same = {
        name
        for name, value in kept.items()
        if _map_places(name, value, _absolute) == _map_places(name, plain.get(name), _absolute)
    }
    if before and same == set(kept) == set(plain):
        return
    _, written, tuned = _read(workspace)
    for name in set(kept) & set(_PLACES):
        if name in same:
            kept[name] = written[name]
        elif _home(workspace) != Path.cwd():  # typed elsewhere: only an absolute path is found from anywhere
            kept[name] = _map_places(name, kept[name], _from_anywhere)
    atomic.write_text(workspace.settings_file, _ABOUT + tomli_w.dumps(kept) + _tuned_text(tuned))
