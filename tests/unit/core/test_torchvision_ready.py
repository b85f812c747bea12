"""torchvision and timm come without torch's compiler, and the compiler is whole for those who ask for it."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from unchoke.core.torchvision_ready import prepare_torchvision

prepare_torchvision()
assert "torch._dynamo" not in sys.modules, "the compiler was loaded"
import timm
import torch
from timm.models.naflexvit import NaFlexRopeIterator

network = timm.create_model("test_resnet", num_classes=3).eval()
picture = torch.zeros(1, 3, 96, 96)
plain = network(picture)
kept_out = next(value for value in vars(NaFlexRopeIterator).values() if hasattr(value, "__wrapped__"))
assert "torch._dynamo" not in sys.modules, "using a network loaded the compiler"
compiled = torch.compile(network, backend="eager")(picture)
assert torch.equal(plain, compiled)
assert sys.modules["torch._dynamo"].__spec__ is not None, "a stand-in was left behind"
roi_align = sys.modules["torchvision.ops.roi_align"]
assert isinstance(roi_align.is_compile_supported("cpu"), bool)
prepare_torchvision()
"""


def test_networks_need_the_compiler_only_when_asked() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
