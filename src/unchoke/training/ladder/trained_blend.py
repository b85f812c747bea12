"""A blend in a file: `best_head.pt` says which models answer in which shares; the models lie beside it.

In: climbed rungs and their shares. Out: files under `checkpoints` of a run, and from them what prediction needs. Each model's
file is what `save_head` or a network's `save` wrote.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core.errors import DataError
from unchoke.training.checkpoints import load_checkpoint, save_tensors
from unchoke.training.data import ProblemKind
from unchoke.training.ladder.blend import Share
from unchoke.training.ladder.kept_rung import KeptRung

BLEND_FORMAT = "blend-1"


@dataclass(frozen=True)
class BlendedModel:
    """One model of a blend: its file, beside `best_head.pt`, whether it is a head or a network, and its share."""

    file: str
    kind: str
    name: str
    share: Share


@dataclass(frozen=True, eq=False)
class TrainedBlend:
    """`outputs` are those for val and test that the blend was judged by."""

    kind: ProblemKind
    names: tuple[str, ...]
    models: tuple[BlendedModel, ...]
    outputs: dict[str, NDArray[np.float32]]
    extra: dict[str, Any]


def save_blend(
    path: Path,
    rungs: Sequence[tuple[KeptRung, Share]],
    outputs: dict[str, NDArray[np.float32]],
    *,
    kind: str,
    names: Sequence[str],
    extra: dict[str, Any],
) -> None:
    """Write the blend to `path`, and copies of its models beside it; models without a share are left out."""
    kept = [(rung, share) for rung, share in rungs if share.weight > 0]
    path.parent.mkdir(parents=True, exist_ok=True)
    models = []
    for number, (rung, share) in enumerate(kept, start=1):
        file = f"model_{number}.pt"
        shutil.copyfile(rung.model_file, path.parent / file)
        models.append(
            {
                "file": file,
                "kind": rung.kind,
                "name": rung.rung.name,
                "weight": share.weight,
                "temperature": share.temperature,
            }
        )
    content = {
        "format": BLEND_FORMAT,
        "kind": kind,
        "names": list(names),
        "models": models,
        "outputs": {split: torch.from_numpy(values) for split, values in outputs.items()},
        "extra": extra,
    }
    save_tensors(path, content)


def load_blend(path: Path) -> TrainedBlend:
    content = load_checkpoint(path)
    if content.get("format") != BLEND_FORMAT:
        raise DataError(
            f"{path} holds no blend of models",
            code="wrong-model-file",
            why=f"its format is {content.get('format')!r}, not {BLEND_FORMAT!r}",
            try_="give the best_head.pt of a run made with --minutes by this version",
        )
    models = [
        BlendedModel(one["file"], one["kind"], one["name"], Share(one["weight"], one["temperature"])) for one in content["models"]
    ]
    outputs = {split: values.numpy() for split, values in content["outputs"].items()}
    return TrainedBlend(content["kind"], tuple(content["names"]), tuple(models), outputs, content["extra"])
