"""The pyramid in OpenVINO on the CPU, with one stream per core. All levels leave the graph as one row.

In: a pyramid and a folder to keep the converted model in. Out: an engine. Whether its numbers may be used is decided elsewhere,
on the user's own patches.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from unchoke.core.errors import MachineError
from unchoke.core.fingerprint import digest
from unchoke.core.tensors import first_line
from unchoke.features.engine_openvino import OpenVinoModel, import_openvino, keep_model
from unchoke.features.engines import in_padded_batches
from unchoke.features.pyramid import FlatPyramid, PyramidSpec, Rows


class OpenVinoPyramidEngine:
    """A compiled pyramid with one infer request per calling thread. `precision` is f32 or bf16."""

    name = "openvino"

    def __init__(
        self, module: nn.Module, spec: PyramidSpec, *, precision: str, streams: int, batch: int = 4, keep_in: Path
    ) -> None:
        self.spec = spec
        self.precision = precision
        self.batch = batch
        self.slots = streams
        shape = (batch, spec.num_bands, spec.patch_px, spec.patch_px)
        self._model = OpenVinoModel(converted(module, spec, keep_in), shape, np.float32, hint=precision, streams=streams)

    def encode(self, patches_nchw: NDArray[Any]) -> Rows:
        return in_padded_batches(patches_nchw.astype(np.float32, copy=False), self.batch, self._model.run)

    def describe(self) -> dict[str, Any]:
        return {
            "engine": self.name,
            "precision": self.precision,
            "batch": self.batch,
            "streams": self.slots,
            "version": self._model.version,
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
