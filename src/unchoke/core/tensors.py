"""Tensor files without code: `torch.load` of plain data only. What would have to run something to be loaded is refused."""

from __future__ import annotations

import errno
import re
from pathlib import Path
from typing import Any


class NotTensors(ValueError):  # noqa: N818 (a fact about a file)
    """The file holds something else than tensors and plain values; the message says what was met."""


def load_tensors(path: Path) -> dict[str, Any]:
    """The mapping in `path`; `NotTensors` for anything else. Nothing in the file is ever executed."""
    import torch

    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, MemoryError) as error:
        if getattr(error, "errno", None) == errno.EINVAL:  # torch looks for what a file cut short no longer has
            raise NotTensors("it is incomplete") from error
        raise
    except Exception as error:  # a file that is no checkpoint can fail anywhere in the unpickler: KeyError, EOFError, ...
        met = re.search(r"GLOBAL ([\w.]+)", str(error))  # without torch's advice on how to load it all the same
        raise NotTensors(f"loading it would run {met[1]}" if met else "it was not written by torch.save as tensors") from error
    if not isinstance(content, dict):
        raise NotTensors(f"it holds a {type(content).__name__}")
    return content


def first_line(error: BaseException) -> str:
    """What an error says, short enough for a sentence."""
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__)[:200]
