"""Imported once by the server that the commands are forked from: everything slow, and nothing that starts a thread."""

from __future__ import annotations

import importlib

from unchoke.features.engine_openvino import import_openvino
from unchoke.torchvision_ready import prepare_torchvision

prepare_torchvision()
for name in (
    *("unchoke.cli.main", "unchoke.flows.fit", "unchoke.flows.evaluate", "unchoke.flows.predict", "unchoke.flows.runs"),
    *("unchoke.report.html", "timm", "torchmetrics", "pyarrow.parquet", "safetensors.torch", "sqlite3"),
):
    importlib.import_module(name)
import_openvino()
