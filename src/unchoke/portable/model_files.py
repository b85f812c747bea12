"""A `PhotoModel` as a file for another runtime, with what it is written into it.

In: the model, a format and a precision, and facts as plain values. Out: files in a folder. ``onnx`` runs with onnxruntime,
``openvino`` with OpenVINO, ``pt2`` with torch alone. With ``f16`` the weights are kept in half the bytes and computed with as
float32; with ``int8`` convolutions and linear layers compute in 8 bits, fitted to the user's photos. Whether the file answers as
the run does is found out elsewhere (`agreement.py`).
"""

from __future__ import annotations

import json
import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch.export import Dim, ExportedProgram

from unchoke.core.errors import MachineError, UsageError, missing_extra
from unchoke.core.tensors import first_line
from unchoke.features.engine_openvino import import_openvino
from unchoke.portable.whole_model import PhotoModel

Format = Literal["onnx", "openvino", "pt2"]
Precision = Literal["f32", "f16", "int8"]
MODEL_NAMES: dict[str, str] = {"onnx": "model.onnx", "openvino": "model.xml", "pt2": "model.pt2"}
PRODUCER = "unchoke"
_EXAMPLE = (2, 301, 437, 3)
"""Sizes that are no multiples of each other, so that no rule between them is taken for one of all pictures."""
_FEW_NUMBERS = 1024
"""Weights smaller than this stay as they are: they make up nothing of a file, and biases suffer most."""


def check_format(format_: str, precision: str) -> None:
    """Refuse what there is not."""
    for option, value, known in (("--format", format_, get_args(Format)), ("--precision", precision, get_args(Precision))):
        if value not in known:
            raise UsageError(f"{option} {value} is not known", why=f"there are {', '.join(known)}", try_=f"{option} {known[0]}")
    if format_ == "pt2" and precision != "f32":
        raise UsageError(
            f"--format pt2 --precision {precision} cannot be written",
            why="torch's own file keeps weights as they were trained",
            try_="--format onnx, or leave --precision out",
        )
    _import_for(format_, precision)


def _import_for(format_: str, precision: str) -> None:
    """Before anything is built: whether all packages are here that will be needed."""
    if format_ == "openvino":
        import_openvino()
    if precision == "int8" and format_ == "openvino":
        _need("nncf", "int8")
    for package in ("onnx", "onnxscript", "onnxruntime") if format_ != "pt2" else ():
        _need(package, "export")


def _need(package: str, extra: str) -> None:
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise missing_extra(package, extra=extra, purpose="unchoke export")


def write_model(
    model: PhotoModel,
    folder: Path,
    format_: Format,
    precision: Precision,
    about: Mapping[str, Any],
    photos: Sequence[NDArray[Any]],
) -> Path:
    """The model's file in `folder`; `about` goes into it as text, `photos` (height, width, RGB) are what int8 is fitted to."""
    file = folder / MODEL_NAMES[format_]
    words = {name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for name, value in about.items()}
    program = _capture(model)
    if format_ == "pt2":
        torch.export.save(program, file, extra_files={"about.json": json.dumps(dict(about), ensure_ascii=False)})
    elif format_ == "onnx":
        _write_onnx(program, model.output, file, precision, words, photos)
    else:
        _write_openvino(program, model.output, file, precision, words, photos)
    return file


def _capture(model: PhotoModel) -> ExportedProgram:
    """The model as a graph for batches and pictures of any size."""
    example = torch.zeros(_EXAMPLE, dtype=torch.uint8)
    sizes = {"pixels": dict.fromkeys(range(3), Dim.DYNAMIC)}
    with _converting(), torch.no_grad():
        return torch.export.export(model, (example,), dynamic_shapes=sizes)


@contextmanager
def _converting() -> Iterator[None]:
    """Exporters warn of their own inner life on every run; what they cannot do is a `MachineError`."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir", "torch.export", "nncf")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (RuntimeError, ValueError, TypeError, NotImplementedError, torch.onnx.OnnxExporterError) as error:
        raise MachineError(
            "this network cannot be written as a file for other runtimes",
            why=f"converting it failed: {type(error).__name__}: {first_line(error)}",
            try_="`unchoke runs export`, which takes the run to another machine with unchoke",
        ) from error
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _write_onnx(
    program: ExportedProgram,
    output: str,
    file: Path,
    precision: Precision,
    words: Mapping[str, str],
    photos: Sequence[NDArray[Any]],
) -> None:
    import onnx

    _save_onnx(program, output, file)
    if precision == "int8":
        _quantise_onnx(file, photos)
    model = onnx.load(file)
    if precision == "f16":
        _halve_weights(model)
    onnx.helper.set_model_props(model, dict(words))
    model.producer_name = PRODUCER
    for number, name in enumerate(("n", "height", "width")):
        model.graph.input[0].type.tensor_type.shape.dim[number].dim_param = name
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "n"
    onnx.save(model, file)


def _save_onnx(program: ExportedProgram, output: str, file: Path) -> None:
    with _converting():
        made = torch.onnx.export(program, dynamo=True, input_names=["pixels"], output_names=[output], verbose=False)
        assert made is not None, "with dynamo a program comes back"
        made.save(file)


def _halve_weights(model: Any) -> None:
    """Large weights as float16 behind a cast, which runtimes carry out once, when they load the file."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    casts = []
    for tensor in model.graph.initializer:
        weights = numpy_helper.to_array(tensor)
        if tensor.data_type != TensorProto.FLOAT or weights.size < _FEW_NUMBERS:
            continue
        name = tensor.name
        if not np.isfinite(weights.astype(np.float16)).all():
            continue
        tensor.CopyFrom(numpy_helper.from_array(weights.astype(np.float16), f"{name}_f16"))
        casts.append(helper.make_node("Cast", [f"{name}_f16"], [name], to=onnx.TensorProto.FLOAT))
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _quantise_onnx(file: Path, photos: Sequence[NDArray[Any]]) -> None:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Photos(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = iter(photos)

        def get_next(self) -> dict[str, NDArray[Any]] | None:
            found = next(self.left, None)
            return None if found is None else {"pixels": found[None]}

    with _converting(), tempfile.TemporaryDirectory(dir=file.parent) as beside:
        ready = Path(beside) / "ready.onnx"
        quant_pre_process(file, ready, skip_symbolic_shape=True)
        quantize_static(
            ready,
            file,
            Photos(),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=["Conv", "Gemm"],  # the resize is made of MatMul, and must stay exact
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )


def _write_openvino(
    program: ExportedProgram,
    output: str,
    file: Path,
    precision: Precision,
    words: Mapping[str, str],
    photos: Sequence[NDArray[Any]],
) -> None:
    ov = import_openvino()
    with tempfile.TemporaryDirectory(dir=file.parent) as beside:
        _save_onnx(program, output, Path(beside) / "model.onnx")
        with _converting():
            model = ov.convert_model(Path(beside) / "model.onnx")
            if precision == "int8":
                import nncf

                # The resize is made of matrix products, and must stay exact.
                ignored = nncf.IgnoredScope(types=["MatMul"])
                samples = nncf.Dataset([photo[None] for photo in photos])
                model = nncf.quantize(model, samples, subset_size=len(photos), ignored_scope=ignored)
            for name, value in words.items():
                model.set_rt_info(value, [PRODUCER, name])
            ov.save_model(model, file, compress_to_fp16=precision == "f16")
