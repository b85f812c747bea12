"""The pyramid in OpenVINO on the CPU, with one stream per core. All levels leave the graph as one row.

In: a pyramid and a folder to keep the converted model in. Out: an engine. Whether its numbers may be used is decided elsewhere,
on the user's own patches.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from unchoke.errors import MachineError
from unchoke.features.engine_openvino import import_openvino, keep_model, shared_core
from unchoke.fingerprint import digest
from unchoke.segment.pyramid import FlatPyramid, PyramidSpec, Rows, in_padded_batches
from unchoke.tensors import first_line


class OpenVinoPyramidEngine:
    """A compiled pyramid with one infer request per calling thread. `precision` is f32 or bf16."""

    name = "openvino"

    def __init__(
        self, module: nn.Module, spec: PyramidSpec, *, precision: str, streams: int, batch: int = 4, keep_in: Path
    ) -> None:
        ov = import_openvino()
        self.spec = spec
        self.precision = precision
        self.batch = batch
        self.slots = streams
        model = shared_core().read_model(converted(module, spec, keep_in))
        shape = (batch, spec.num_bands, spec.patch_px, spec.patch_px)
        model.reshape(list(shape))
        config = {
            "INFERENCE_PRECISION_HINT": precision,
            "NUM_STREAMS": str(streams),
            "INFERENCE_NUM_THREADS": str(streams),
            "PERFORMANCE_HINT": "THROUGHPUT",
        }
        self._compiled = shared_core().compile_model(model, "CPU", config)
        self._local = threading.local()
        self._version = str(ov.__version__)
        self._encode_batch(np.zeros(shape, np.float32))  # its bindings deadlock if two threads are the first to use them

    def encode(self, patches_nchw: NDArray[Any]) -> Rows:
        return in_padded_batches(patches_nchw, self.batch, self._encode_batch, row_length=self.spec.row_length)

    def _encode_batch(self, patches_nchw: NDArray[Any]) -> Rows:
        request = getattr(self._local, "request", None)
        if request is None:
            request = self._local.request = self._compiled.create_infer_request()
        request.infer({0: patches_nchw.astype(np.float32, copy=False)}, share_inputs=True)
        rows: Rows = request.get_output_tensor(0).data  # its memory is the request's own; the caller copies it out
        return rows

    def describe(self) -> dict[str, Any]:
        return {
            "engine": self.name,
            "precision": self.precision,
            "batch": self.batch,
            "streams": self.slots,
            "version": self._version,
        }


def converted(module: nn.Module, spec: PyramidSpec, keep_in: Path) -> Path:
    """The model file of a pyramid, converted once and kept."""
    folder = keep_in / f"openvino-pyramid-{digest(spec.to_dict())[:16]}"
    return keep_model(folder, lambda: _convert_or_refuse(module, spec))


def _convert_or_refuse(module: nn.Module, spec: PyramidSpec) -> Any:
    """The converted model; a network this OpenVINO cannot take is a `MachineError`, so that another engine is used."""
    ov = import_openvino()
    example = torch.zeros(2, spec.num_bands, spec.patch_px, spec.patch_px)
    shape = ov.PartialShape([-1, *example.shape[1:]])
    try:
        return ov.convert_model(FlatPyramid(module).eval(), example_input=example, input=[(shape, ov.Type.f32)])
    except Exception as error:  # tracing and conversion raise types of two packages
        raise MachineError(
            f"OpenVINO cannot run the pyramid of {spec.encoder}",
            why=f"converting it failed: {type(error).__name__}: {first_line(error)}",
            try_="--engine torch",
        ) from error
