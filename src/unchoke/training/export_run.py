"""`runs export`: one folder with everything `predict`, `evaluate` and `report` need on another machine.

It holds the run's files, the encoder's weights as safetensors (where a part of it is frozen), and what the judged samples were
shown as: their features, the activations at the cut, or, for a network that was trained as a whole, their pixels.
"""

from __future__ import annotations

import math
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from unchoke.core import atomic, checksums, listing
from unchoke.core.errors import UsageError
from unchoke.core.events import Note, OnEvent
from unchoke.core.fingerprint import digest_file
from unchoke.core.units import format_bytes, format_count
from unchoke.features.feature_store import ACTIVATIONS, POOLED, FeatureStore, save_rows, save_shard
from unchoke.runs.lookup import FoundRun, find_run
from unchoke.runs.run_files import seal_run
from unchoke.runs.session import default_listener
from unchoke.training.checkpoints import load_checkpoint
from unchoke.training.evaluate import (
    EXPORTED_FEATURES,
    EXPORTED_PIXELS,
    open_activations,
    open_pictures,
    place_features,
)
from unchoke.training.heads.heads import load_head
from unchoke.training.ladder.blend import load_blend
from unchoke.training.network.trained_network import TrainedNetwork, load_network
from unchoke.training.saved_models import ENCODER_FILE, encoder_file, encoder_of, load_same_encoder, save_encoder
from unchoke.training.scoring.predictions import load_predictions

MOST_PIXEL_BYTES = 200_000_000
"""Beyond this the judged samples' pixels stay behind: an export is something to carry, and pictures can be shown again."""
_COPIED = ("record.json", "predictions.csv", "history.json", "report.html", "checkpoints/best_head.pt")
_CHUNK_BYTES = 64_000_000


def export_run(
    run: str | Path,
    to: str | Path,
    *,
    weights: str | Path | None = None,
    out: str | Path | None = None,
    on_event: OnEvent | None = None,
) -> dict[str, Any]:
    """One folder with everything `evaluate`, `predict` and `report` need, to take to another machine.

    Args:
        run: A run: exp_3, 3, latest, best, or an exported folder.
        to: The folder to make, whole or not at all.
        weights: The encoder's weights, where they are no longer found.
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.

    Returns:
        The `folder`, the `run`, its `size_bytes`, and whether it draws `masks`.

    Example:
        >>> unchoke.export_run("best", "exported", out="work")["run"]
        'exp_1'
    """
    to = Path(to)
    listener = on_event or default_listener()
    found = find_run(run, out=out)
    if to.exists():
        # nothing but an export of this very run, with every file as it was written
        held = (to / checksums.CHECKSUMS).is_file()
        if held:
            checksums.verify_folder(to)
            held = all((to / name).is_file() and digest_file(to / name) == digest_file(found.folder / name) for name in _COPIED)
        if not held:
            why, try_ = "an export never overwrites anything", f"choose another name, such as {to}-2"
            raise UsageError(f"{to} exists already", code="output-exists", why=why, try_=try_)
        listener(Note(f"{found.record.run} was exported to {to} already"))
        return _about(to, found)
    atomic.sweep_temporaries(to.parent, of=to.name)
    with atomic.build_folder(to) as built:
        for relative in _COPIED:
            (built / relative).parent.mkdir(parents=True, exist_ok=True)
            checksums.verify(found.folder / relative)
            shutil.copy2(found.folder / relative, built / relative)
        if found.is_blend:
            names, told = _export_blend(found, built, weights)
        elif found.record.draws_masks:
            names, told = _export_masks(found, built, weights)
        elif found.trains_network:
            names, told = _export_network(found, built, weights, listener)
        else:
            names, told = _export_head(found, built, weights)
        seal_run(built, names)
    listener(Note(f"{found.record.run} {told}"))
    return _about(to, found)


def _about(to: Path, found: FoundRun) -> dict[str, Any]:
    size_bytes = sum(file.size_bytes for file in listing.walk(to))
    return {"folder": str(to), "run": found.record.run, "size_bytes": size_bytes, "masks": found.record.draws_masks}


def _export_blend(found: FoundRun, built: Path, weights: Path | str | None) -> tuple[list[str], str]:
    """Every model with the weights of its encoder; their outputs for the judged samples are in the run's own file."""
    names = []
    for one in load_blend(found.head_file).models:
        model = replace(found, model=one.file)
        checksums.verify(model.head_file)
        shutil.copy2(model.head_file, built / "checkpoints" / one.file)
        extra = load_checkpoint(model.head_file)["extra"]
        save_encoder(encoder_of(model, extra, weights=weights), built, encoder_file(model))
        names += [f"checkpoints/{one.file}", encoder_file(model)]
    return names, f"with {format_count(len(names) // 2, 'model')} of its blend and the weights of every encoder"


def _export_head(found: FoundRun, built: Path, weights: Path | str | None) -> tuple[list[str], str]:
    """The encoder and the judged samples' features, every view of them. Returns the files, and what to say of them."""
    head, extra = load_head(found.head_file)
    encoder = encoder_of(found, extra, weights=weights)
    sample_ids = load_predictions(found.folder / "predictions.csv")["sample_id"].tolist()
    placement = place_features(found, extra["fingerprint"], sample_ids)
    source = FeatureStore(placement, dim=head.dim, num_augmented=int(extra["num_augmented"]))
    save_rows(built / EXPORTED_FEATURES, source.all_views(np.arange(len(sample_ids), dtype=np.int64)), sample_ids)
    save_encoder(encoder, built)
    return [EXPORTED_FEATURES, ENCODER_FILE], "with its encoder's weights and the features it was judged on"


def _export_network(found: FoundRun, built: Path, weights: Path | str | None, listener: OnEvent) -> tuple[list[str], str]:
    """The same for a network: the encoder and activations where a part was frozen, else pixels."""
    trained, extra = load_network(found.head_file)
    sample_ids = load_predictions(found.folder / "predictions.csv")["sample_id"].tolist()
    if trained.is_whole:
        return _save_pixels(found, trained, extra, sample_ids, built, listener)
    save_encoder(encoder_of(found, extra, weights=weights), built)
    store = open_activations(found, extra["fingerprint"], sample_ids)
    size = _save_activations(built / EXPORTED_FEATURES, store, sample_ids)
    held = f"the activations it was judged on ({format_bytes(size)} for {format_count(len(sample_ids), 'image')})"
    return [EXPORTED_FEATURES, ENCODER_FILE], f"with its encoder's weights and {held}"


def _export_masks(found: FoundRun, built: Path, weights: Path | str | None) -> tuple[list[str], str]:
    """What drawing masks of other scenes needs: of a frozen backbone, its weights; one that was trained is in the run's own."""
    from unchoke.masks.segmenter import WHOLE
    from unchoke.masks.trained_segmenter import load_segmenter

    trained = load_segmenter(found.folder)
    if trained.cut == WHOLE:
        return [], "with all its weights"
    spec = trained.spec
    save_encoder(load_same_encoder(found, spec.encoder, spec.weights_sha256, weights=weights), built)
    return [ENCODER_FILE], "with its encoder's weights"


def _save_pixels(
    found: FoundRun, trained: TrainedNetwork, extra: dict[str, Any], sample_ids: list[str], built: Path, listener: OnEvent
) -> tuple[list[str], str]:
    if found.workspace is None:  # an export of an export
        if not (found.folder / EXPORTED_PIXELS).exists():
            return [], "with all its weights"
        shutil.copy2(found.folder / EXPORTED_PIXELS, built / EXPORTED_PIXELS)
        return [EXPORTED_PIXELS], "with all its weights and the pixels it was judged on"
    pictures = open_pictures(found, trained, extra, sample_ids, on_event=listener)
    size, images = len(sample_ids) * pictures.sample_bytes, format_count(len(sample_ids), "image")
    if size > MOST_PIXEL_BYTES:
        left = (
            f"the pixels of the {images} it was judged on take {format_bytes(size)}, more than {format_bytes(MOST_PIXEL_BYTES)}"
        )
        listener(Note(f"{left}: they stay here, so the export predicts but cannot be evaluated by itself", "warning"))
        return [], "with all its weights"
    pixels = pictures.open(sample_ids, 0).read(np.arange(len(sample_ids)), None).numpy()
    save_shard(built / EXPORTED_PIXELS, {"pixels": pixels}, sample_ids)
    return [EXPORTED_PIXELS], f"with all its weights and the pixels it was judged on ({format_bytes(size)} for {images})"


def _save_activations(file: Path, store: FeatureStore, sample_ids: list[str]) -> int:
    """An uncompressed NPZ such as `save_shard` writes, filled chunk by chunk: activations may be larger than memory."""
    num, shape = len(sample_ids), (len(sample_ids), *store.row_shape)
    step = max(1, _CHUNK_BYTES // max(1, 2 * store.dim))
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(np.float16)), "fortran_order": False, "shape": shape}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        name = POOLED if len(store.row_shape) == 1 else ACTIVATIONS
        with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
            np.lib.format.write_array_header_1_0(member, header)
            for start in range(0, num, step):
                rows = store.rows(np.arange(start, min(start + step, num), dtype=np.int64))
                member.write(np.ascontiguousarray(rows).data)
        with archive.open("sample_id.npy", "w") as member:
            np.lib.format.write_array(member, np.array(sample_ids, np.str_), allow_pickle=False)
    return int(2 * math.prod(shape))
