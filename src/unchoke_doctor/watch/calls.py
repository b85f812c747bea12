"""Files that the script opens, pixels that it decodes, checkpoints that it saves: counted and timed by the line that does it.

In: `open`, Pillow, other decoders, `torch.save` and safetensors, replaced as the script imports them. Out: calls of the kinds
open (key: the file), decode (amount: pixels decoded; key: the file; detail: format and size in the file) and save (amount:
bytes). Pillow decodes when pixels are first needed: that is the moment watched.
"""

from __future__ import annotations

import builtins
import io
import os
import sys
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

from unchoke_doctor.watch import hooks
from unchoke_doctor.watch.hooks import Function, key_of, path_of
from unchoke_doctor.watch.recorder import Recorder

_WRITING = frozenset("wax+")
_DECODERS = {
    "cv2": ("imread", "imdecode"),
    "torchvision.io": ("read_image", "decode_image", "decode_jpeg", "decode_png", "decode_webp"),
    "imageio.v3": ("imread",),
    "skimage.io": ("imread",),
    "tifffile": ("imread",),
}
"""Functions that take a path or bytes and give an array or a tensor."""
_LOADING = {"PIL.ImageFile": "ImageFile", "PIL.WebPImagePlugin": "WebPImageFile", "PIL.TiffImagePlugin": "TiffImageFile"}
"""Pillow's classes whose `load` decodes."""
_DECODED = "_unchoke_decoded"
_stat = os.stat
About = Callable[..., dict[str, Any] | None]
"""From a call's result and arguments to what is recorded of it; None for a call that does not count."""


def install(recorder: Recorder) -> None:
    """Watch each library from the moment it is imported."""
    opened = hooks.replace(builtins, "open", partial(_timed, recorder, "open", _opened), stand_in=True)
    if opened is not None:
        hooks.replace(io, "open", lambda _: opened.replacement, stand_in=True)
    for module, names in _DECODERS.items():
        for name in names:
            watch = partial(_timed, recorder, "decode", _decoded)
            hooks.when_imported(module, partial(_replace_in, module, name, watch))
    for module, kind in _LOADING.items():
        hooks.when_imported(module, partial(_watch_pillow, recorder, module, kind))
    hooks.when_imported("torch", partial(_watch_saving, recorder))
    for name in ("save_file", "save_model"):
        hooks.when_imported("safetensors.torch", partial(_replace_in, "safetensors.torch", name, partial(_timed_save, recorder)))


def _replace_in(module: str, name: str, make: Callable[[Function], Function]) -> None:
    hooks.replace(sys.modules[module], name, make, stand_in=True)


def _timed(recorder: Recorder, kind: str, about: About, original: Function) -> Function:
    def watched(*args: Any, **options: Any) -> Any:
        began_s = perf_counter()
        result = original(*args, **options)
        took_s = perf_counter() - began_s
        try:
            if (facts := about(result, *args, **options)) is not None:
                recorder.call(kind, took_s, **facts)
        except Exception as error:  # objects of somebody else's, which may do anything
            recorder.note(f"not counted: {kind} ({type(error).__name__}: {error})")
        return result

    return watched


def _opened(_result: Any, file: Any, mode: str = "r", *_: Any, **_options: Any) -> dict[str, Any] | None:
    """Files that are read; a number is a file that is open already."""
    return {"key": path_of(file)} if type(file) is not int and _WRITING.isdisjoint(mode) else None


def _decoded(array: Any, *args: Any, **options: Any) -> dict[str, Any]:
    shape: tuple[Any, ...] = tuple(getattr(array, "shape", ()))
    # tensors have channels first, arrays last
    sides = shape[-2:] if hasattr(array, "requires_grad") else shape[:2]
    height, width = (int(sides[0]), int(sides[1])) if len(sides) == 2 else (0, 0)
    source = args[0] if args else next(iter(options.values()), None)
    return {"amount": width * height, "key": key_of(source), "detail": {"width_px": width, "height_px": height}}


def _watch_pillow(recorder: Recorder, module: str, kind: str) -> None:
    def make(original: Function) -> Function:
        def decode(self: Any, *args: Any, **options: Any) -> Any:
            # the first load of a frame uses up its list of tiles; formats without one are known by the frame
            new = self.tile or vars(self).get(_DECODED, -1) != self.tell()
            if not new:
                return original(self, *args, **options)
            settings = getattr(self, "decoderconfig", None)  # set by `draft`, which has JPEGs decoded smaller
            divisor = settings[0] if self.format == "JPEG" and settings and settings[0] else 1
            width, height = self.size
            detail = {"format": self.format, "width_px": width * divisor, "height_px": height * divisor}
            began_s = perf_counter()
            result = original(self, *args, **options)
            took_s = perf_counter() - began_s
            setattr(self, _DECODED, self.tell())
            key = self.filename or key_of(getattr(self, "fp", None))
            key = key if isinstance(key, str) else None
            recorder.call("decode", took_s, amount=self.size[0] * self.size[1], key=key, detail=detail)
            return result

        return decode

    hooks.replace(getattr(sys.modules[module], kind), "load", make)


def _watch_saving(recorder: Recorder) -> None:
    import torch
    import torch.serialization

    hook = hooks.replace(torch.serialization, "save", partial(_timed_save, recorder))
    if hook is not None and torch.save is hook.original:
        torch.save = hook.replacement


def _timed_save(recorder: Recorder, original: Function) -> Function:
    """For a function whose second argument is a file."""

    def saving(*args: Any, **kwargs: Any) -> Any:
        phase, account = recorder.phase, recorder.account
        recorder.phase = "checkpoint"
        account.enter("checkpoint_s")
        began_s = perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            account.leave()
            file = args[1] if len(args) > 1 else kwargs.get("f", kwargs.get("filename"))
            recorder.call("save", perf_counter() - began_s, amount=_file_bytes(file), key=path_of(file))
            recorder.phase = phase

    return saving


def _file_bytes(file: Any) -> int:
    """Bytes of a file, or how far an open one was written; 0 where neither can be told."""
    try:
        return int(file.tell()) if hasattr(file, "tell") else int(_stat(file).st_size)
    except (OSError, TypeError, ValueError, AttributeError):
        return 0
