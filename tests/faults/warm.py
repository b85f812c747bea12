"""Imported once by the server that the commands are forked from: everything slow, and nothing that starts a thread."""

from __future__ import annotations

import importlib

from unchoke.core.torchvision_ready import prepare_torchvision
from unchoke.features.engine_openvino import import_openvino

prepare_torchvision()
for name in (
    *("unchoke.cli.main", "unchoke.commands.fit", "unchoke.commands.evaluate", "unchoke.commands.predict", "unchoke.runs.lookup"),
    *("unchoke.reports.html", "timm", "pyarrow.parquet", "safetensors.torch", "sqlite3"),
):
    importlib.import_module(name)
import_openvino()
