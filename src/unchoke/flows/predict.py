"""`predict`: new images through a run's encoder and head, from its files alone.

In: a run and image files or folders. Out: one row per image. An image that cannot be read is named with its reason.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unchoke import atomic, listing
from unchoke.decode.image import DecodeError, Pixels, read_bytes
from unchoke.decode.pipeline import map_ahead
from unchoke.device.backend import torch_device
from unchoke.device.detect import detect_machine
from unchoke.device.policy import choose_policy
from unchoke.errors import MachineError, UsageError
from unchoke.events import Note, OnEvent, Progress
from unchoke.features.encoders import Encoder
from unchoke.features.engine_openvino import OpenVinoEngine
from unchoke.features.engines import Engine, TorchEngine
from unchoke.features.extract import decode_views
from unchoke.features.recipe import Recipe
from unchoke.fingerprint import digest_bytes
from unchoke.flows.export import encoder_of
from unchoke.flows.runs import FoundRun, find_run
from unchoke.flows.scoring import class_columns, one_thread
from unchoke.flows.session import default_listener
from unchoke.report.json import load_record
from unchoke.train.checkpoints import load_head

_SUFFIXES = {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".mpo"}
_CHUNK = 64
_SHOWN = 20


@dataclass(frozen=True)
class Predictions:
    """Rows in the order of the images; `failed` maps the unreadable ones to their reasons."""

    run: str
    rows: list[dict[str, Any]]
    failed: dict[str, str]
    saved_to: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "predictions": self.rows,
            "failed": self.failed,
            "saved_to": self.saved_to and str(self.saved_to),
        }

    def to_text(self) -> str:
        lines = ["\t".join(_cell(value) for value in row.values()) for row in self.rows[:_SHOWN]]
        if len(self.rows) > _SHOWN:
            lines.append(
                f"… and {len(self.rows) - _SHOWN} more" + ("" if self.saved_to else ": --to FILE.csv or --json gives them all")
            )
        if self.rows:
            lines.insert(0, "\t".join(self.rows[0]))
        lines += [f"failed\t{path}\t{reason}" for path, reason in self.failed.items()]
        if self.saved_to:
            lines.append(f"saved     {self.saved_to}")
        return "\n".join(lines)


def predict(
    run: str | Path,
    images: Sequence[str | Path],
    *,
    to: Path | str | None = None,
    weights: Path | str | None = None,
    device: str | None = None,
    out: Path | str | None = None,
    on_event: OnEvent | None = None,
) -> Predictions:
    """Predict every image in `images` (files, or folders searched for images)."""
    listener = on_event or default_listener()
    found = find_run(run, out=out)
    paths = list_images(images)
    head, extra = load_head(found.head_file)
    encoder = encoder_of(found, extra, weights=weights)
    engine = _engine(found, encoder, extra, device, listener)
    recipe = Recipe(encoder.spec, engine.name, engine.precision, int(extra["num_augmented"]))
    rows: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    for chunk, pixels, broken in _decoded(paths, recipe, listener):
        failed.update(broken)
        if not chunk:
            continue
        views = engine.encode(pixels).reshape(len(chunk), -1, encoder.spec.dim).astype(np.float16)
        with one_thread():
            outputs = head.logits(views if head.config.kind == "attention" else views[:, 0])
        rows.extend(_rows(chunk, outputs, head.names, head.kind, float(extra["temperature"])))
    saved_to = Path(to) if to is not None else None
    if saved_to is not None:
        _save(saved_to, rows)
    name = str(load_record(found.folder / "record.json")["run"])
    return Predictions(name, rows, failed, saved_to)


def list_images(images: Sequence[str | Path]) -> list[str]:
    """Files as given; the images below folders."""
    paths: list[str] = []
    missing = [str(image) for image in images if not Path(image).exists()]
    if missing:
        raise UsageError(
            f"no such file or folder: {missing[0]}", why=f"{len(missing)} of {len(images)} do not exist", try_="check the path"
        )
    for image in map(Path, images):
        if image.is_dir():
            paths += [entry.path for entry in listing.walk(image) if Path(entry.path).suffix.lower() in _SUFFIXES]
        else:
            paths.append(str(image))
    if not paths:
        raise UsageError(
            "there are no images to predict", why=f"{images[0]} holds none", try_="name image files, or a folder with some"
        )
    return paths


def _decoded(paths: list[str], recipe: Recipe, listener: OnEvent) -> Iterator[tuple[list[str], Pixels, dict[str, str]]]:
    """Chunks of pictures ready for the engine, with the reasons of those that failed."""

    def load(path: str) -> tuple[str, list[Pixels] | DecodeError]:
        try:
            data = read_bytes(path)
            return path, decode_views(data, digest_bytes(data), recipe)  # by content: a path may be spelt in many ways
        except DecodeError as error:
            return path, error

    started = time.monotonic()
    good: list[str] = []
    pixels: list[Pixels] = []
    broken: dict[str, str] = {}
    for number, (path, views) in enumerate(map_ahead(load, paths, threads=2, ahead=32), start=1):
        if isinstance(views, DecodeError):
            broken[path] = str(views)
        else:
            good.append(path)
            pixels.extend(views)
        if len(good) == _CHUNK or number == len(paths):
            yield good, np.stack(pixels) if pixels else np.empty((0, 0, 0, 3), np.uint8), broken
            rate = number / max(time.monotonic() - started, 1e-6)
            listener(Progress("predict", number, len(paths), "images", rate, (len(paths) - number) / rate, len(broken)))
            good, pixels = [], []


def _engine(found: FoundRun, encoder: Encoder, extra: dict[str, Any], device: str | None, listener: OnEvent) -> Engine:
    """The engine the run's features were made with, or plain torch (with a word) where it is not to be had."""
    policy = choose_policy(detect_machine(), overrides={"device": device})
    engine, precision = str(extra["engine"]), str(extra["precision"])
    if engine == "openvino":
        try:
            return _openvino(found, encoder, precision, device, max(1, policy.workers))
        except MachineError as error:
            listener(Note(f"{error.what}; plain torch is used instead: same model, tiny differences", "warning"))
            precision = "f32"
    return TorchEngine(
        encoder,
        device=torch_device(policy),
        precision=precision,
        batch=policy.encode_batch,
        channels_last=policy.memory_format == "channels_last",
    )


def _openvino(found: FoundRun, encoder: Encoder, precision: str, device: str | None, streams: int) -> Engine:
    if device is not None or precision == "int8":
        raise MachineError(
            "the run's features come from OpenVINO" + (" in int8" if device is None else f", which --device {device} replaces"),
            why="int8 is calibrated on the training images" if device is None else "OpenVINO runs on the processor only",
            try_="leave --device out",
        )
    if found.workspace is None and not os.access(found.folder, os.W_OK):
        with tempfile.TemporaryDirectory() as keep_in:  # an exported run on a read-only disk
            return OpenVinoEngine(encoder, precision=precision, streams=streams, keep_in=Path(keep_in))
    keep_in_run = found.workspace.engines if found.workspace else found.folder / "engines"
    return OpenVinoEngine(encoder, precision=precision, streams=streams, keep_in=keep_in_run)


def _rows(
    paths: list[str], outputs: np.typing.NDArray[np.float32], names: tuple[str, ...], kind: str, temperature: float
) -> list[dict[str, Any]]:
    if kind == "classification":
        columns = class_columns(outputs, names, temperature)
        return [
            {"path": path, "predicted": str(predicted), "confidence": float(confidence)}
            for path, predicted, confidence in zip(paths, columns["predicted"], columns["confidence"], strict=True)
        ]
    return [
        {"path": path, **{name: float(v) for name, v in zip(names, row, strict=True)}}
        for path, row in zip(paths, outputs, strict=True)
    ]


def _save(to: Path, rows: list[dict[str, Any]]) -> None:
    import csv
    import io

    text = io.StringIO()
    names = list(rows[0]) if rows else ["path"]
    writer = csv.DictWriter(text, fieldnames=names, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writeheader()
    writer.writerows(rows)
    atomic.write_text(to, text.getvalue())


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
