"""A `PortableModel` as a file for another runtime, with what it is written into it.

In: the model, a format and a precision, and facts as plain values. Out: files in a folder. ``onnx`` runs with onnxruntime,
``openvino`` with OpenVINO, ``pt2`` with torch alone. With ``f16`` the weights are kept in half the bytes and computed with as
float32; with ``int8`` convolutions and linear layers compute in 8 bits, fitted to the user's photos. Whether the file answers as
the run does is found out elsewhere (`agreement.py`).
"""

from __future__ import annotations

import ast
import json
import logging
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch.export import Dim, ExportedProgram

from unchoke.core.errors import MachineError, UsageError, missing_extra
from unchoke.core.signal_stack import kept_signal_stack
from unchoke.core.tensors import first_line
from unchoke.exports.whole_model import PortableModel
from unchoke.features.engine_openvino import import_openvino

Format = Literal["onnx", "openvino", "pt2"]
Precision = Literal["f32", "f16", "int8"]
MODEL_NAMES: dict[str, str] = {"onnx": "model.onnx", "openvino": "model.xml", "pt2": "model.pt2"}
PRODUCER = "unchoke"
_FEW_NUMBERS = 1024
"""Weights smaller than this stay as they are: they make up nothing of a file, and biases suffer most."""


def check_format(format_: str, precision: str) -> None:
    """Refuse what there is not."""
    for option, value, known in (("--format", format_, get_args(Format)), ("--precision", precision, get_args(Precision))):
        if value not in known:
            raise UsageError(
                f"{option} {value} is not known",
                code="unknown-choice",
                why=f"there are {', '.join(known)}",
                try_=f"{option} {known[0]}",
            )
    if format_ == "pt2" and precision != "f32":
        raise UsageError(
            f"--format pt2 --precision {precision} cannot be written",
            code="precision-unsupported",
            why="torch's own file keeps weights as they were trained",
            try_="--format onnx, or leave --precision out",
        )
    _import_for(format_, precision)


def _import_for(format_: str, precision: str) -> None:
    """Before anything is built: whether all packages are here that will be needed."""
    if format_ == "openvino":
        import_openvino()
    if precision == "int8":
        _need("nncf", "int8")
    for package in ("onnx", "onnxscript", "onnxruntime") if format_ != "pt2" else ():
        _need(package, "export")


def _need(package: str, extra: str) -> None:
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise missing_extra(package, extra=extra, purpose="unchoke export")


@dataclass(frozen=True, eq=False)
class FileOrder:
    """What is to be written beside the graph: facts about it, and inputs (each a batch) that int8 is fitted to."""

    format: Format
    precision: Precision
    about: Mapping[str, Any]
    samples: Sequence[NDArray[Any]] = ()

    @property
    def words(self) -> dict[str, str]:
        """The facts as text."""
        return {key: one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for key, one in self.about.items()}


def write_model(model: PortableModel, folder: Path, order: FileOrder) -> Path:
    """The model's file in `folder`."""
    file, program = folder / MODEL_NAMES[order.format], _capture(model)
    if order.format == "pt2":
        torch.export.save(program, file, extra_files={"about.json": json.dumps(dict(order.about), ensure_ascii=False)})
    elif order.format == "onnx":
        _write_onnx(program, model, file, order)
    else:
        _write_openvino(program, model, file, order)
    return file


def _capture(model: PortableModel) -> ExportedProgram:
    """The model as a graph for batches and pictures of any size."""
    sizes = {"pixels": dict.fromkeys(range(len(model.free_sides)), Dim.DYNAMIC)}
    with _converting(), torch.no_grad():
        return torch.export.export(model, (model.example(),), dynamic_shapes=sizes)


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
            code="export-failed",
            why=f"converting it failed: {type(error).__name__}: {first_line(error)}",
            try_="`unchoke runs export`, which takes the run to another machine with unchoke",
        ) from error
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _write_onnx(program: ExportedProgram, model: PortableModel, file: Path, order: FileOrder) -> None:
    import onnx

    _save_onnx(program, model, file)
    written = onnx.load(file)
    if order.precision == "int8":
        written = _quantised(written, written, model, [{"pixels": sample} for sample in order.samples])
    if order.precision == "f16":
        _halve_weights(written)
    for node in written.graph.node:  # where in unchoke's source, and on which machine, it was made
        del node.metadata_props[:]
    onnx.helper.set_model_props(written, order.words)
    written.producer_name = PRODUCER
    onnx.save(written, file)


def _save_onnx(program: ExportedProgram, model: PortableModel, file: Path) -> None:
    import onnx

    with _converting():
        made = torch.onnx.export(program, dynamo=True, input_names=["pixels"], output_names=[model.output], verbose=False)
        assert made is not None, "with dynamo a program comes back"
        made.save(file)
    written = onnx.load(file)
    for number, name in enumerate(model.free_sides):
        written.graph.input[0].type.tensor_type.shape.dim[number].dim_param = name
    written.graph.output[0].type.tensor_type.shape.dim[0].dim_param = model.free_sides[0]
    onnx.save(written, file)


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


def _quantised(graph: Any, onnx_graph: Any, model: PortableModel, samples: Sequence[Any]) -> Any:
    """`graph` with its networks in 8 bits, but for the last layer; `onnx_graph` knows the module of each node."""
    import nncf

    def is_inside(node: Any) -> bool:
        scopes = next((one.value for one in node.metadata_props if one.key == "pkg.torch.onnx.name_scopes"), "[]")
        return any(scope.rpartition(".")[2] in model.networks for scope in ast.literal_eval(scopes))

    last = [node.name for node in onnx_graph.graph.node if node.op_type in ("Conv", "Gemm", "MatMul")][-1]
    kept = sorted({re.escape(node.name) for node in onnx_graph.graph.node if node.name == last or not is_inside(node)})
    ignored = nncf.IgnoredScope(patterns=[f"^{name}(/.*)?$" for name in kept], validate=False)
    with _converting(), kept_signal_stack(), redirect_stdout(sys.stderr):  # it tells there how far it is
        return nncf.quantize(
            graph,
            nncf.Dataset(list(samples)),
            subset_size=len(samples),
            preset=nncf.QuantizationPreset.MIXED,  # activations need not lie around zero
            ignored_scope=ignored,
        )


def _write_openvino(program: ExportedProgram, model: PortableModel, file: Path, order: FileOrder) -> None:
    ov = import_openvino()
    import onnx

    with tempfile.TemporaryDirectory(dir=file.parent) as beside:
        source = Path(beside) / "model.onnx"
        _save_onnx(program, model, source)
        with _converting():
            written = ov.convert_model(source)
        if order.precision == "int8":
            written = _quantised(written, onnx.load(source), model, order.samples)
        if order.precision == "f16":
            _halve_constants(written)
        for name, value in order.words.items():
            written.set_rt_info(value, [PRODUCER, name])
        ov.save_model(written, file, compress_to_fp16=False)  # which would round small weights and the resize, too


def _halve_constants(model: Any) -> None:
    """`_halve_weights` for OpenVINO: the very same numbers."""
    from openvino import Type, opset13

    for node in model.get_ops():
        if node.get_type_name() != "Constant" or node.get_element_type() != Type.f32 or node.data.size < _FEW_NUMBERS:
            continue
        half = node.data.astype(np.float16)
        if np.isfinite(half).all():
            users = node.output(0).get_target_inputs()
            read = opset13.convert(opset13.constant(half), "f32")
            for user in users:
                user.replace_source_output(read.output(0))
