"""A rung that was climbed, in a folder of its own: the model, its outputs for val and test, and what it took.

In: what a training gave. Out: files under `experiments/rungs`, named by everything the model depends on: a ladder that is climbed
again, or for longer, finds them and goes on from there. `rung.json` is written last; it vouches for the others and the folder.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core import atomic, checksums
from unchoke.core.errors import DamagedFile
from unchoke.core.fingerprint import digest_file
from unchoke.training.build_record import TrainingOutcome
from unchoke.training.ladder.rungs import Rung

FOLDER = "rungs"
MODEL_FILE, OUTPUTS_FILE, ABOUT_FILE = "model.pt", "outputs.npz", "rung.json"


@dataclass(frozen=True, eq=False)
class KeptRung:
    """`seconds` are those of the whole rung; `kind` says what the model file holds: a head, or a network."""

    rung: Rung
    folder: Path
    kind: str
    seconds: float
    extract_s: float
    train_s: float
    outputs: dict[str, NDArray[np.float32]]

    @property
    def model_file(self) -> Path:
        return self.folder / MODEL_FILE


def keep_rung(
    rung: Rung, folder: Path, outcome: TrainingOutcome, extra: dict[str, Any], *, seconds: float, extract_s: float, train_s: float
) -> KeptRung:
    """Write what a rung gave; its checkpoints are no longer needed."""
    outcome.save(folder / MODEL_FILE, extra)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **outcome.outputs)
    atomic.write_bytes(folder / OUTPUTS_FILE, buffer.getvalue())
    kind = "network" if "training" in outcome.about else "head"
    about = {
        **rung.to_dict(),
        "folder": folder.name,
        "kind": kind,
        "seconds": round(seconds, 3),
        "extract_s": round(extract_s, 3),
        "train_s": round(train_s, 3),
        "sha256": {name: digest_file(folder / name) for name in (MODEL_FILE, OUTPUTS_FILE)},
    }
    checksums.save_checked_json(folder / ABOUT_FILE, about)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    return KeptRung(rung, folder, kind, seconds, extract_s, train_s, outcome.outputs)


def recall_rung(rung: Rung, folder: Path, warn: Callable[[str], object]) -> KeptRung | None:
    """The rung in `folder` if it was climbed to the end and all its files are as they were written."""
    if not (folder / ABOUT_FILE).exists():
        return None
    about = checksums.recall_json(folder / ABOUT_FILE, warn)
    try:
        sound = about and about.get("folder") == folder.name
        sound = sound and all(digest_file(folder / name) == sha256 for name, sha256 in about["sha256"].items())
    except OSError as error:
        raise DamagedFile(
            f"{error.filename} cannot be read", code="stage-gone", why=str(error), try_=f"delete {folder}"
        ) from error
    if not sound:
        warn(f"{folder} is not as it was written: {rung.name} is trained anew")
        shutil.rmtree(folder)
        return None
    with np.load(folder / OUTPUTS_FILE, allow_pickle=False) as arrays:
        outputs = {name: arrays[name] for name in arrays.files}
    return KeptRung(rung, folder, about["kind"], about["seconds"], about["extract_s"], about["train_s"], outputs)
