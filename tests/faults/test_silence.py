"""Nothing leaves the machine: the OpenVINO engine starts neither a sender's thread nor a sender's process."""

from __future__ import annotations

import subprocess
import sys

IMPORTING = """
import sys, threading
from unchoke.features.engine_openvino import import_openvino
import_openvino()
started = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
started += [name for name in sys.modules if name.startswith("multiprocessing.popen")]
sys.exit(", ".join(started) or 0)
"""


def test_importing_openvino_starts_no_telemetry() -> None:
    ended = subprocess.run([sys.executable, "-c", IMPORTING], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
