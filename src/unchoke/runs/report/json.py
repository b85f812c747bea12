"""Values to strict JSON, events to lines and back, and a run's `record.json` to and from disk.

In comes whatever a command gathered: dataclasses, paths, numpy scalars and arrays, datetimes, NaN. Out comes what every JSON
parser reads: text, numbers, booleans, null, lists and objects. What has no JSON form (a function, an open file) is refused, not
guessed.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections.abc import Mapping, Set
from datetime import date, datetime
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from unchoke.core import atomic, checksums
from unchoke.core.choices import Choice
from unchoke.core.errors import DataError
from unchoke.core.events import Chosen, Event, Note, Progress, StageDone, StageStarted
from unchoke.core.input_file import parse_json

if TYPE_CHECKING:
    from unchoke.core.record import RunRecord

SCHEMA = 1
WRITE_AGAIN = "run the command that made the run again: it is judged anew, and this file is written again"
_EVENTS: dict[str, type[StageStarted | StageDone | Progress | Choice | Note]] = {
    "stage_started": StageStarted,
    "stage_done": StageDone,
    "progress": Progress,
    "chosen": Choice,
    "note": Note,
}
_EVENT_NAMES = {kind: name for name, kind in _EVENTS.items()}


def to_jsonable(value: Any) -> Any:
    """`value` in plain JSON types; NaN and infinities become null, paths use forward slashes, sets are sorted."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, enum.Enum):
        return to_jsonable(value.value)
    if isinstance(value, str | PurePath):
        return atomic.valid_text(value.as_posix() if isinstance(value, PurePath) else value)
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else float(value) if math.isfinite(value) else None
    if isinstance(value, datetime | date):
        return value.isoformat()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_jsonable(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {_key(key): to_jsonable(item) for key, item in value.items()}
    if isinstance(value, Set):
        return sorted((to_jsonable(item) for item in value), key=repr)
    if isinstance(value, list | tuple):
        return [to_jsonable(item) for item in value]
    for plain in ("tolist", "to_dict"):  # numpy arrays and scalars and torch tensors; objects of ours
        if hasattr(value, plain):
            return to_jsonable(getattr(value, plain)())
    raise TypeError(f"no JSON form for {type(value).__qualname__}: {value!r}")


def _key(key: Any) -> str:
    plain = to_jsonable(key)
    return plain if isinstance(plain, str) else json.dumps(plain)


def dump_line(value: Any) -> str:
    """`value` as one line of strict JSON in ASCII, so that no encoding and no exotic line end can break it."""
    return json.dumps(to_jsonable(value), ensure_ascii=True, allow_nan=False, separators=(", ", ": "))


def dump_event(event: Event) -> str:
    """An event as one line; a choice lies in it flat, as in a record."""
    value = event.choice if isinstance(event, Chosen) else event
    return dump_line({"schema": SCHEMA, "event": _EVENT_NAMES[type(value)], **to_jsonable(value)})


def parse_event(line: Mapping[str, Any]) -> Event | None:
    """The event of a line that `dump_event` wrote; None for any other line and for events this version does not know."""
    kind = _EVENTS.get(str(line.get("event")))
    if kind is None:
        return None
    known = {field.name for field in dataclasses.fields(kind)}
    try:
        value = kind(**{name: item for name, item in line.items() if name in known})
    except TypeError:  # a field it cannot do without is not there
        return None
    return Chosen(value) if isinstance(value, Choice) else value


def save_record(path: Path, record: RunRecord) -> None:
    """Write a run's record, atomically."""
    atomic.write_json(path, {"schema": SCHEMA, **to_jsonable(record)})


def load_record(path: Path) -> RunRecord:
    """Read a run's record; a missing, damaged or too new one is an explained error."""
    from unchoke.core.record import RunRecord

    try:
        plain = parse_json(checksums.read_checked(path, try_=WRITE_AGAIN))
    except FileNotFoundError:
        raise _unusable(path, "there is no such file: the run has not finished, or its folder was moved") from None
    except (ValueError, RecursionError) as error:
        raise _unusable(path, f"it is not valid JSON: {error}") from None
    if not isinstance(plain, dict):
        raise _unusable(path, "it holds no JSON object")
    schema = plain.get("schema", SCHEMA)
    if not isinstance(schema, int) or schema > SCHEMA:
        raise _unusable(path, f"it has schema {schema!r}; this version reads up to {SCHEMA}")
    with checksums.making_sense(path, try_=WRITE_AGAIN):
        return RunRecord.of(plain)


def _unusable(path: Path, why: str) -> DataError:
    return DataError(f"cannot read the record {path}", code="damaged-record", why=why, try_="unchoke runs list")
