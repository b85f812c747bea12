"""Imported once by the server that commands are forked from: everything slow, and nothing that starts a thread."""

from __future__ import annotations

import gc
import importlib

from unchoke.core.torchvision_ready import prepare_torchvision
from unchoke.features.engine_openvino import import_openvino

prepare_torchvision()
for name in (
    *("unchoke.cli.main", "unchoke.training.fit", "unchoke.training.evaluate", "unchoke.training.predict", "unchoke.runs.lookup"),
    *("unchoke.training.pipeline", "unchoke.scenes.tiling.tile", "unchoke.runs.report.html", "unchoke.runs.report.console"),
    *("unchoke.runs.trace.trace_html", "unchoke.training.heads.train_heads", "unchoke.training.heads.head_trainer"),
    *(
        "timm",
        "jinja2",
        "pandas",
        "psutil",
        "pyarrow.parquet",
        "rasterio",
        "safetensors.torch",
        "simplejpeg",
        "sqlite3",
        "tomli_w",
    ),
):
    importlib.import_module(name)
import_openvino()
gc.collect()
gc.freeze()  # commands collect their garbage more than once: what all of them share need not be looked through each time
