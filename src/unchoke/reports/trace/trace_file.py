"""A Chrome trace file as its events: plain or gzipped, an object or a bare list.

In: a path. Out: what the head of the file says, and the events as they stand there. What cannot be read is an error in three
lines; what the events mean is for `source.py`.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unchoke.core.errors import DataError, UsageError

RECORD_ONE = (
    "with torch.profiler.profile(record_shapes=True, profile_memory=True) as p: …; p.export_chrome_trace('one.pt.trace.json')"
)
"""How to make a trace, as a person would type it."""


def load_events(path: Path) -> tuple[Mapping[str, Any], list[dict[str, Any]]]:
    """The head of the file and its events; both forms of the format are read."""
    value = _parse(path, _bytes(path))
    head = value if isinstance(value, dict) else {}
    found = value.get("traceEvents") if isinstance(value, dict) else value
    if not isinstance(found, list):
        raise DataError(f"no trace: {path}", why="it is JSON, but holds no list `traceEvents`", try_=RECORD_ONE)
    events = [event for event in found if isinstance(event, dict)]
    return {key: item for key, item in head.items() if key != "traceEvents"}, events


def _bytes(path: Path) -> bytes:
    try:
        packed = path.read_bytes()
        return gzip.decompress(packed) if packed[:2] == b"\x1f\x8b" else packed
    except FileNotFoundError:
        try_ = "name a *.pt.trace.json file; those of unchoke's own runs lie in logs/profiler/ of the workspace"
        raise UsageError(f"there is no file {path}", why="a trace is one file that torch.profiler wrote", try_=try_) from None
    except IsADirectoryError:
        why = "it is a folder; a trace is one file"
        raise UsageError(f"cannot read {path} as a trace", why=why, try_="name one *.pt.trace.json file in it") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(path, f"its compressed data is cut off or damaged: {error}") from None
    except OSError as error:
        raise _damaged(path, error.strerror or str(error)) from None


def _parse(path: Path, data: bytes) -> Any:
    try:
        return json.loads(data)
    except UnicodeDecodeError:
        raise _damaged(path, "it is not text") from None
    except RecursionError:
        raise _damaged(path, "its values lie too deep inside each other for a trace") from None
    except json.JSONDecodeError as error:
        cut = error.pos >= len(error.doc.rstrip()) - 1 or error.msg.startswith("Unterminated")
        why = (
            "it ends in the middle: the program was stopped while it wrote the file" if cut else f"it is not valid JSON: {error}"
        )
        raise _damaged(path, why) from None


def _damaged(path: Path, why: str) -> DataError:
    return DataError(f"cannot read the trace {path}", why=why, try_=f"record it again: {RECORD_ONE}")
