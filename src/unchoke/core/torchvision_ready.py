"""Make `import torchvision` work on torch builds without its compiled operators.

torchvision registers Python stand-ins for two of its C++ operators at import time. Where its binary does not match the installed
torch (a CPU build of torch beside the ordinary wheel of torchvision), the operators were never declared and the import itself
fails, although nothing here calls them. Declaring their schemas first is enough. Nothing is done where they exist.
"""

from __future__ import annotations

from typing import Any

_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
_kept_alive: list[Any] = []  # a Library undoes its declarations when it is collected


def prepare_torchvision() -> None:
    """Call before importing torchvision or timm; cheap and harmless to repeat."""
    import sys

    if "torchvision" in sys.modules or _kept_alive:
        return
    try:
        import torchvision  # noqa: F401
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        _declare_missing()


def _declare_missing() -> None:
    import sys

    import torch

    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]  # what the failed import left half-initialised
    declare: Any = torch.library.Library  # torch leaves it untyped
    library = declare("torchvision", "FRAGMENT")
    _kept_alive.append(library)
    for name, schema in _SCHEMAS.items():
        if not hasattr(torch.ops.torchvision, name):
            library.define(schema)
