"""`runs export`: one folder with everything `predict`, `evaluate` and `report` need on another machine.

It holds the run's files, the encoder's weights as safetensors, and the features of the samples the run was judged on.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from unchoke import atomic
from unchoke.errors import UsageError
from unchoke.events import Note, OnEvent
from unchoke.features.encoders import Encoder, EncoderSpec, load_encoder
from unchoke.features.store import POOLED, VIEWS, save_shard
from unchoke.flows.evaluate import EXPORTED_FEATURES, load_predictions, open_features
from unchoke.flows.runs import FoundRun, find_run
from unchoke.flows.session import default_listener
from unchoke.train.checkpoints import load_head

ENCODER_FILE = "encoder.safetensors"
_COPIED = ("record.json", "predictions.csv", "history.json", "report.html", "checkpoints/best_head.pt")


def export_run(
    run: str | Path,
    to: Path | str,
    *,
    weights: Path | str | None = None,
    out: Path | str | None = None,
    on_event: OnEvent | None = None,
) -> dict[str, Any]:
    """Make the folder `to`, whole or not at all."""
    to = Path(to)
    listener = on_event or default_listener()
    if to.exists():
        raise UsageError(
            f"{to} exists already", why="an export never overwrites anything", try_=f"choose another name, such as {to}-2"
        )
    found = find_run(run, out=out)
    _, extra = load_head(found.head_file)
    encoder = encoder_of(found, extra, weights=weights)
    with atomic.build_folder(to) as built:
        for relative in _COPIED:
            (built / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(found.folder / relative, built / relative)
        _save_features(found, extra, built)
        _save_encoder(encoder, built)
    size_bytes = sum((to / name).stat().st_size for name in (*_COPIED, EXPORTED_FEATURES, ENCODER_FILE))
    listener(Note(f"{found.record['run']} with its encoder's weights and the features it was judged on"))
    return {"folder": str(to), "run": found.record["run"], "size_bytes": size_bytes}


def _save_features(found: FoundRun, extra: dict[str, Any], built: Path) -> None:
    sample_ids = load_predictions(found.folder / "predictions.csv")["sample_id"].tolist()
    source = open_features(found, extra, sample_ids)
    everything = source.all_views(np.arange(len(sample_ids), dtype=np.int64))
    arrays = {POOLED: np.ascontiguousarray(everything[:, 0])}
    if source.num_views > 1:
        arrays[VIEWS] = np.ascontiguousarray(everything[:, 1:])
    save_shard(built / EXPORTED_FEATURES, arrays, sample_ids)


def _save_encoder(encoder: Encoder, built: Path) -> None:
    from safetensors.torch import save_file

    save_file({name: value.contiguous() for name, value in encoder.module.state_dict().items()}, built / ENCODER_FILE)
    shutil.copymode(built / "record.json", built / ENCODER_FILE)  # the library writes it for its owner alone


def encoder_of(found: FoundRun, extra: dict[str, Any], *, weights: Path | str | None = None) -> Encoder:
    """The very encoder a run was trained with, refused if its weights are not the same ones."""
    spec = EncoderSpec.from_dict(extra["encoder"])
    exported = found.folder / ENCODER_FILE
    file = Path(weights) if weights else exported if exported.exists() else _weights_setting(found)
    encoder = load_encoder(spec.name, weights=file)
    if encoder.spec.weights_sha256 != spec.weights_sha256:
        raise UsageError(
            f"the weights of {spec.name} here are not those the run was trained with",
            why=f"their hash is {encoder.spec.weights_sha256[:12]}, the run's is {spec.weights_sha256[:12]}",
            try_="pass the original file with --weights, or use an exported run, which carries its weights",
        )
    return encoder


def _weights_setting(found: FoundRun) -> Path | None:
    """The weights file the workspace's settings name, if any."""
    from unchoke.settings import load_remembered

    remembered = load_remembered(found.workspace).get("weights") if found.workspace else None
    return Path(remembered) if remembered and Path(remembered).exists() else None
