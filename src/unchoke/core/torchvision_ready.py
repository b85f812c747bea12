"""Make `import torchvision` work on torch builds without its compiled operators, and without loading torch's compiler.

torchvision registers Python stand-ins for two of its C++ operators at import time. Where its binary does not match the installed
torch (a CPU build of torch beside the ordinary wheel of torchvision), the operators were never declared and the import itself
fails, although nothing here calls them. Declaring their schemas first is enough. Nothing is done where they exist.

One of its operators, and one of timm's networks, want a function of torch's compiler when they are imported, and loading the
compiler takes longer than torch itself. They are given functions that ask it when they are called.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from types import ModuleType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
_COMPILER = "torch._dynamo"
_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
_kept_alive: list[Any] = []  # a Library undoes its declarations when it is collected


def prepare_torchvision() -> None:
    """Import torchvision and timm, as quickly as that goes; harmless to repeat. Call it before anything imports either."""
    if {"torchvision", "timm"} <= sys.modules.keys():
        return
    with _compiler_put_off():
        try:
            import torchvision
        except RuntimeError as error:
            if "torchvision::" not in str(error):
                raise
            _declare_missing()
            import torchvision  # noqa: F401
        import timm  # noqa: F401


@contextmanager
def _compiler_put_off() -> Iterator[None]:
    """Within the block, what is imported from torch's compiler is a stand-in; nothing changes where it is loaded already."""
    if _COMPILER in sys.modules:
        yield
        return
    stand_in, tools = ModuleType(_COMPILER), ModuleType(f"{_COMPILER}.utils")
    tools.is_compile_supported = _is_compile_supported  # type: ignore[attr-defined]
    stand_in.utils, stand_in.disable = tools, _disable  # type: ignore[attr-defined]
    sys.modules |= {_COMPILER: stand_in, tools.__name__: tools}
    try:
        yield
    finally:
        for name in (_COMPILER, tools.__name__):
            del sys.modules[name]


def _disable(function: F | None = None, recursive: bool = True, **_: Any) -> Any:
    """What keeps the compiler out of a function, as long as it is not loaded: the function itself; afterwards, what it says."""
    if function is None:
        return partial(_disable, recursive=recursive)

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        compiler = sys.modules.get(_COMPILER)
        return (function if compiler is None else compiler.disable(function, recursive))(*args, **kwargs)

    return run


def _is_compile_supported(device_type: str) -> bool:
    from torch._dynamo.utils import is_compile_supported

    return bool(is_compile_supported(device_type))


def _declare_missing() -> None:
    import torch

    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]  # what the failed import left half-initialised
    declare: Any = torch.library.Library  # torch leaves it untyped
    library = declare("torchvision", "FRAGMENT")
    _kept_alive.append(library)
    for name, schema in _SCHEMAS.items():
        if not hasattr(torch.ops.torchvision, name):
            library.define(schema)
