"""OpenVINO on the CPU: the fastest engine for the frozen part where there is no GPU.

In: an encoder and a folder to keep the converted model in. Out: an engine with one stream per core, so that as many batches run
side by side. Whether its numbers may be used is decided elsewhere (`agree.py`), on the user's own pictures.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core import atomic
from unchoke.core.errors import MachineError, UnchokeError, missing_extra
from unchoke.core.fingerprint import digest
from unchoke.features.encoders import Encoder
from unchoke.features.engines import Features, FromPixels, in_padded_batches
from unchoke.photos.pixels.image import Pixels

OPENVINO_BATCH = 8
"""Pictures for each stream at once: their activations stay in the cache."""
_HINTS = {"f32": "f32", "bf16": "bf16", "int8": "f32"}


class OpenVinoModel:
    """A compiled model of one input and one output, with one infer request per calling thread."""

    def __init__(self, file: Path, shape: tuple[int, ...], dtype: type[np.generic], *, hint: str, streams: int) -> None:
        self.version = str(import_openvino().__version__)
        model = shared_core().read_model(file)
        model.reshape(list(shape))
        config = {
            "INFERENCE_PRECISION_HINT": hint,
            "NUM_STREAMS": str(streams),
            "INFERENCE_NUM_THREADS": str(streams),
            "PERFORMANCE_HINT": "THROUGHPUT",
        }
        self._compiled = shared_core().compile_model(model, "CPU", config)
        self._local = threading.local()
        self.run(np.zeros(shape, dtype))  # its bindings deadlock if two threads are the first to use them

    def run(self, inputs: NDArray[Any]) -> Features:
        request = getattr(self._local, "request", None)
        if request is None:
            request = self._local.request = self._compiled.create_infer_request()
        request.infer({0: inputs}, share_inputs=True)
        return np.array(request.get_output_tensor(0).data, dtype=np.float32)


class OpenVinoEngine:
    """A compiled model with one infer request per calling thread."""

    name = "openvino"

    def __init__(
        self,
        encoder: Encoder,
        *,
        precision: str,
        streams: int,
        batch: int = OPENVINO_BATCH,
        keep_in: Path,
        calibration: Pixels | None = None,
    ) -> None:
        self.precision = precision
        self.batch = batch
        self.slots = streams
        side = encoder.spec.preprocess.size_px
        file = converted(encoder, keep_in, calibration=calibration if precision == "int8" else None)
        self._model = OpenVinoModel(file, (batch, side, side, 3), np.uint8, hint=_HINTS[precision], streams=streams)

    def encode(self, pixels_nhwc: Pixels) -> Features:
        return in_padded_batches(pixels_nhwc, self.batch, self._model.run)

    def describe(self) -> dict[str, Any]:
        return {
            "engine": self.name,
            "precision": self.precision,
            "batch": self.batch,
            "streams": self.slots,
            "version": self._model.version,
        }


def import_openvino() -> Any:
    """OpenVINO, with its telemetry off: importing it is enough to make it phone home, from a process of its own."""
    _silence_telemetry()
    try:
        import openvino
    except ImportError as error:
        raise missing_extra("openvino", extra="openvino", purpose="the OpenVINO engine") from error
    return openvino


@cache
def shared_core() -> Any:
    """One core for the whole process, never let go of.

    Its CPU plugin gives the thread that first uses it a stack for signal handlers, and frees that stack when the last model and
    core are gone, in whichever thread that happens. Freed from another thread, the next signal (a Ctrl-C) ends the process.
    """
    return import_openvino().Core()


def _silence_telemetry() -> None:
    """Replace the sender of the telemetry package by nothing; its opt-out file would live in the user's home instead."""
    try:
        import openvino_telemetry
    except ImportError:
        return

    def nothing(*_: Any, **__: Any) -> None:
        return None

    for method in ("__init__", "start_session", "end_session", "send_event", "send_error", "send_stack_trace", "force_shutdown"):
        if hasattr(openvino_telemetry.Telemetry, method):
            setattr(openvino_telemetry.Telemetry, method, nothing)


def converted(encoder: Encoder, keep_in: Path, *, calibration: Pixels | None = None) -> Path:
    """The model file for `encoder`, converted once and kept; with `calibration` pixels, quantised to int8 by NNCF."""
    cut = [] if encoder.cut == "end" else [encoder.cut]
    key = digest([encoder.spec.to_dict(), _digest_pixels(calibration), *cut])[:16]
    return keep_model(keep_in / f"openvino-{key}", lambda: _convert_or_refuse(encoder, calibration))


def keep_model(folder: Path, convert: Callable[[], Any]) -> Path:
    """The model file in `folder`; if there is none yet, what `convert` gives, written whole or not at all."""
    if not (folder / "model.xml").is_file():
        model = convert()
        with atomic.build_folder(folder) as built:
            _save(model, built / "model.xml")
    return folder / "model.xml"


def _save(model: Any, file: Path) -> None:
    """Write the model and read it back: OpenVINO does not say so when the disk was too full for all of it."""
    ov = import_openvino()
    try:
        ov.save_model(model, file, compress_to_fp16=False)
        shared_core().read_model(file)
    except RuntimeError as error:
        raise atomic.no_room(file) from error


def _convert_or_refuse(encoder: Encoder, calibration: Pixels | None) -> Any:
    """The converted model; a network this OpenVINO cannot take is a `MachineError`, so that another engine is used."""
    try:
        model = _convert(encoder)
        return model if calibration is None else _quantise(model, calibration)
    except UnchokeError:
        raise
    except Exception as error:  # tracing, conversion and quantisation raise types of three packages
        raise MachineError(
            f"OpenVINO cannot run {encoder.spec.name}",
            why=f"converting it failed: {type(error).__name__}: {str(error).strip().splitlines()[0][:200] if str(error) else ''}",
            try_="--engine torch",
        ) from error


def _convert(encoder: Encoder) -> Any:
    ov = import_openvino()
    side = encoder.spec.preprocess.size_px
    example = torch.zeros(2, side, side, 3, dtype=torch.uint8)
    shape = ov.PartialShape([-1, side, side, 3])
    return ov.convert_model(
        FromPixels(encoder.module, encoder.spec.preprocess).eval(), example_input=example, input=[(shape, ov.Type.u8)]
    )


def _quantise(model: Any, calibration: Pixels) -> Any:
    try:
        import nncf
    except ImportError as error:
        raise missing_extra("nncf", extra="int8", purpose="int8 precision") from error
    samples: Iterable[Pixels] = [calibration[i : i + 1] for i in range(len(calibration))]
    return nncf.quantize(model, nncf.Dataset(samples), subset_size=len(calibration))


def _digest_pixels(pixels: Pixels | None) -> str:
    import hashlib

    return "" if pixels is None else hashlib.sha256(pixels.tobytes()).hexdigest()
