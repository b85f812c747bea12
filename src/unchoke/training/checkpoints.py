"""Heads and training states in files that hold tensors and plain values only.

In: a `TrainedHead`, or the state of a training. Out: files that load with `torch.load(weights_only=True)`, written
atomically. A file with code in it is refused, not run. This module does not decide when to save.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO, Any

import torch

from unchoke.core import atomic
from unchoke.core.errors import DataError, UsageError
from unchoke.core.tensors import NotTensors, load_tensors
from unchoke.training.data import Standardiser
from unchoke.training.heads.heads import HeadConfig
from unchoke.training.heads.trained_head import TrainedHead

HEAD_FORMAT = 1


def save_head(head: TrainedHead, path: Path, *, extra: dict[str, Any]) -> None:
    """Write `head` and `extra` (plain values and tensors) to `path`."""
    save_tensors(
        path,
        {
            "format": HEAD_FORMAT,
            "config": head.config.to_dict(),
            "params": head.params,
            "feature_mean": torch.from_numpy(head.standardiser.mean),
            "feature_std": torch.from_numpy(head.standardiser.std),
            "target_mean": torch.from_numpy(head.target_mean),
            "target_std": torch.from_numpy(head.target_std),
            "kind": head.kind,
            "names": list(head.names),
            "best_epoch": head.best_epoch,
            "val": head.val,
            "extra": extra,
        },
    )


def load_head(path: Path) -> tuple[TrainedHead, dict[str, Any]]:
    """The head in `path`, on the CPU, and the `extra` it was saved with."""
    content = load_checkpoint(path)
    if content.get("format") != HEAD_FORMAT:
        raise DataError(
            f"{path} holds no trained head of format {HEAD_FORMAT}",
            why=f"its format is {content.get('format')!r}",
            try_="give the best_head.pt of a run made by this version",
        )
    head = TrainedHead(
        config=HeadConfig(**content["config"]),
        params=content["params"],
        standardiser=Standardiser(content["feature_mean"].numpy(), content["feature_std"].numpy()),
        kind=content["kind"],
        names=tuple(content["names"]),
        target_mean=content["target_mean"].numpy(),
        target_std=content["target_std"].numpy(),
        best_epoch=content["best_epoch"],
        val=content["val"],
    )
    return head, content["extra"]


def save_tensors(path: Path, content: dict[str, Any]) -> None:
    """Write tensors and plain containers to `path`, wholly or not at all; the same content gives the same bytes."""
    plain = _canonical(content)
    atomic.write_with(path, lambda file: _write(plain, file))


def _write(plain: dict[str, Any], file: IO[bytes]) -> None:
    """Straight into the file. Where that fails, torch hides the system's own error (a full disk, say) behind one of its own."""
    try:
        torch.save(plain, file)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def _canonical(value: Any) -> Any:
    """An equal value whose bytes depend on nothing else: pickle writes a string once per object, so equal ones become one."""
    if isinstance(value, dict):
        return {_canonical(key): _canonical(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    if isinstance(value, str):
        return sys.intern(str(value))
    if isinstance(value, tuple):
        return tuple(_canonical(item) for item in value)
    return _own_storage(value) if isinstance(value, torch.Tensor) else value


def _own_storage(value: torch.Tensor) -> torch.Tensor:
    """On the CPU, and not a part of something larger, which would be written as a whole; copied only where it has to be."""
    plain = value.detach().cpu().contiguous()
    return plain if plain.untyped_storage().nbytes() == plain.nbytes else plain.clone()


def load_checkpoint(path: Path) -> dict[str, Any]:
    """What `save_tensors` wrote. Anything that would need code to load is refused."""
    try:
        return load_tensors(path)
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}", why="weights are read from it", try_="check the path") from None
    except NotTensors as error:
        raise _not_weights(path, str(error)) from error


def _not_weights(path: Path, fact: str) -> DataError:
    return DataError(
        f"{path} is not a weights file",
        why=f"only tensors and plain values are loaded, and nothing in a file is ever run ({fact[:200]})",
        try_="give a file written by unchoke, or re-save the weights with torch.save(model.state_dict(), FILE)",
    )
