"""A model that is let go of in another thread does not take the stack of signal handlers with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import numpy as np
import openvino
from openvino import opset13

given = opset13.parameter([1, 4], np.float32)
session = openvino.compile_model(openvino.Model([opset13.relu(given)], [given], "m"), "CPU")
"""
PROGRAM = """
import gc, os, signal, sys, threading
from pathlib import Path
from unchoke.exports.example_script import load_script

held = [load_script(Path(sys.argv[1]))]
thread = threading.Thread(target=lambda: (held.clear(), gc.collect()))
thread.start()
thread.join()
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    print("as it should")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only there does OpenVINO change that stack")
def test_ctrl_c_after_a_model_has_gone_in_another_thread(tmp_path: Path) -> None:
    (tmp_path / "predict.py").write_text(SCRIPT, "utf-8")
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "as it should\n"), done.stderr
