"""What processes that decode and compute need, imported once by the server they are forked from (`jobs/loader_processes.py`)."""

from __future__ import annotations

import unchoke.features.extractor  # noqa: F401
from unchoke.core.torchvision_ready import prepare_torchvision

prepare_torchvision()
