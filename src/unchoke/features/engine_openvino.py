"""OpenVINO on the CPU: the fastest engine for the frozen part where there is no GPU.

In: a frozen network and a folder to keep the converted model in. Out: an engine with one stream per core, so that as many batches
run side by side. Whether its numbers may be used is decided elsewhere (`agree.py`), on the user's own photos or patches.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core import atomic, checksums
from unchoke.core.errors import DamagedFile, MachineError, UnchokeError, missing_extra
from unchoke.core.signal_stack import kept_signal_stack
from unchoke.core.tensors import first_line
from unchoke.features.engines import Features, FrozenNetwork, in_padded_batches

OPENVINO_BATCH = 8
"""Pictures for each stream at once: their activations stay in the cache."""
_MODEL, _WEIGHTS = "model.xml", "model.bin"
_HINTS = {"f32": "f32", "bf16": "bf16", "int8": "f32"}


class OpenVinoEngine:
    """A compiled model with one infer request per calling thread. `calibration` are the inputs that int8 is fitted to.

    The converted model is kept in a folder below `keep_in`; or it lies in the folder `kept` already, and is only read.
    """

    name = "openvino"

    def __init__(
        self,
        network: FrozenNetwork,
        *,
        precision: str,
        streams: int,
        batch: int = OPENVINO_BATCH,
        keep_in: Path | None = None,
        kept: Path | None = None,
        calibration: NDArray[Any] | None = None,
        warn: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.precision = precision
        self.batch = batch
        self.slots = streams
        self._dtype, shape = network.input_dtype, (batch, *network.input_shape)
        fitted_to = calibration if precision == "int8" else None
        self.folder = kept or model_folder(network, keep_in or Path(), calibration=fitted_to)
        model = _read_kept(kept) if kept else open_model(network, self.folder.parent, calibration=fitted_to, warn=warn)
        model.reshape(list(shape))
        config = {
            "INFERENCE_PRECISION_HINT": _HINTS[precision],
            "NUM_STREAMS": str(streams),
            "INFERENCE_NUM_THREADS": str(streams),
            "PERFORMANCE_HINT": "THROUGHPUT",
        }
        self._compiled = shared_core().compile_model(model, "CPU", config)
        self._local = threading.local()
        self._run(np.zeros(shape, self._dtype))  # its bindings deadlock if two threads are the first to use them

    def encode(self, inputs: NDArray[Any]) -> Features:
        return in_padded_batches(inputs.astype(self._dtype, copy=False), self.batch, self._run)

    def _run(self, batch: NDArray[Any]) -> Features:
        request = getattr(self._local, "request", None)
        if request is None:
            request = self._local.request = self._compiled.create_infer_request()
        request.infer({0: batch}, share_inputs=True)
        return np.array(request.get_output_tensor(0).data, dtype=np.float32)

    def describe(self) -> dict[str, Any]:
        return {
            "engine": self.name,
            "precision": self.precision,
            "batch": self.batch,
            "streams": self.slots,
            "version": str(import_openvino().__version__),
        }


def import_openvino() -> Any:
    """OpenVINO, with its telemetry off: importing it is enough to make it phone home, from a process of its own.

    The sender is replaced by nothing; its opt-out file would live in the user's home instead.
    """
    with suppress(ImportError):
        import openvino_telemetry

        sender = openvino_telemetry.Telemetry
        methods = "__init__ start_session end_session send_event send_error send_stack_trace force_shutdown"
        for name in methods.split():
            if hasattr(sender, name):
                setattr(sender, name, lambda *_, **__: None)
    try:
        import openvino
    except ImportError as error:
        raise missing_extra("openvino", extra="openvino", purpose="the OpenVINO engine") from error
    return openvino


@cache
def shared_core() -> Any:
    """One core for the whole process, never let go of: see `unchoke.core.signal_stack`."""
    return import_openvino().Core()


def open_model(
    network: FrozenNetwork,
    keep_in: Path,
    *,
    calibration: NDArray[Any] | None = None,
    warn: Callable[[str], object] = lambda _: None,
) -> Any:
    """The model of `network`, converted once and kept; one whose files are damaged is told and converted again."""
    folder = model_folder(network, keep_in, calibration=calibration)
    if folder.is_dir():
        try:
            return _read_kept(folder)
        except DamagedFile as error:
            warn(f"{error.what} ({error.why}): the network is converted again")
            shutil.rmtree(folder)
    model = _convert(network, calibration)
    with atomic.build_folder(folder) as built:
        try:
            import_openvino().save_model(model, built / _MODEL, compress_to_fp16=False)
            shared_core().read_model(built / _MODEL)  # OpenVINO does not say so when the disk was too full for all of it
        except RuntimeError as error:
            raise atomic.no_room(built / _MODEL) from error
        checksums.add_checksums(built, (_MODEL, _WEIGHTS))
    return shared_core().read_model(folder / _MODEL)


def model_folder(network: FrozenNetwork, keep_in: Path, *, calibration: NDArray[Any] | None = None) -> Path:
    """Where the converted model lies; with `calibration` inputs it is one quantised to int8 by NNCF."""
    return keep_in / network.model_name("" if calibration is None else hashlib.sha256(calibration.tobytes()).hexdigest())


def _read_kept(folder: Path) -> Any:
    """The model in `folder`, as it was written."""
    for name in (_MODEL, _WEIGHTS):
        if not (folder / name).is_file():
            raise checksums.damaged(folder / name, "it is not there")
        checksums.verify(folder / name)
    try:
        model = shared_core().read_model(folder / _MODEL)
    except RuntimeError as error:
        raise checksums.damaged(folder / _MODEL, f"OpenVINO cannot read it: {first_line(error)}") from error
    if not model.inputs or not model.outputs:
        raise checksums.damaged(folder / _MODEL, "it has no input or no output")
    return model


def _convert(network: FrozenNetwork, calibration: NDArray[Any] | None) -> Any:
    """The converted model; a network this OpenVINO cannot take is a `MachineError`, so that another engine is used."""
    ov = import_openvino()
    example = torch.from_numpy(np.zeros((2, *network.input_shape), network.input_dtype))
    inputs = [(ov.PartialShape([-1, *network.input_shape]), ov.Type(network.input_dtype))]
    trace: Any = torch.jit.trace  # torch leaves it untyped
    try:
        # traced here: OpenVINO would have the tracer run the network again and again to check itself, which `agree.py` does
        traced = trace(network.runnable().eval(), example, strict=False, check_trace=False)
        model = ov.convert_model(traced, example_input=example, input=inputs)
        if calibration is None:
            return model
        try:
            import nncf
        except ImportError as error:
            raise missing_extra("nncf", extra="int8", purpose="int8 precision") from error
        samples = [calibration[i : i + 1] for i in range(len(calibration))]
        with kept_signal_stack():  # it opens cores of its own
            return nncf.quantize(model, nncf.Dataset(samples), subset_size=len(calibration))
    except UnchokeError:
        raise
    except Exception as error:  # tracing, conversion and quantisation raise types of three packages
        raise MachineError(
            f"OpenVINO cannot run {network.title}",
            code="openvino-cannot-convert",
            why=f"converting it failed: {type(error).__name__}: {first_line(error)}",
            try_="--engine torch",
        ) from error
