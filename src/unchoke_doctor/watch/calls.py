"""Files that the script opens, pixels that it decodes, checkpoints that it saves: counted and timed by the line that does it.

In: `open`, Pillow, other decoders, `torch.save` and safetensors, replaced as the script imports them. Out: calls of the kinds
open (key: the file), decode (amount: pixels decoded; key: the file; detail: format, size in the file, the divisor if it was
decoded smaller) and save (amount: bytes). Pillow decodes when pixels are first needed: that is the moment watched.
"""

from __future__ import annotations

import builtins
import io
import os
import sys
from functools import partial
from time import perf_counter
from typing import Any

from unchoke_doctor.watch import hooks
from unchoke_doctor.watch.hooks import Fail, Function, key_of, path_of
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


def install(recorder: Recorder) -> None:
    """Watch each library from the moment it is imported."""
    if opened := hooks.put(builtins, "open", partial(_watch_open, recorder)):
        replacement: Function = opened.replacement
        hooks.put(io, "open", lambda *_: replacement)
    for module, names in _DECODERS.items():
        hooks.when_imported(module, partial(_watch_decoders, recorder, module, names))
    for module, kind in _LOADING.items():
        hooks.when_imported(module, partial(_watch_pillow, recorder, module, kind))
    hooks.when_imported("torch", partial(_watch_saving, recorder))
    hooks.when_imported("safetensors.torch", partial(_watch_safetensors, recorder))


def _watch_open(recorder: Recorder, original: Function, fail: Fail) -> Function:
    """Files that are read; a number is a file that is open already."""

    def open_file(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        began_s = perf_counter()
        opened = original(file, mode, *args, **options)
        if type(file) is not int and _WRITING.isdisjoint(mode):
            try:
                recorder.call("open", perf_counter() - began_s, key=path_of(file))
            except Exception as error:
                fail(error)
        return opened

    return open_file


def _watch_pillow(recorder: Recorder, module: str, kind: str) -> None:
    def make(original: Function, fail: Fail) -> Function:
        def decode(self: Any, *args: Any, **options: Any) -> Any:
            # the first load of a frame uses up its list of tiles; formats without one are known by the frame
            new = self.tile or vars(self).get(_DECODED, -1) != self.tell()
            if not new:
                return original(self, *args, **options)
            detail = _about(self)
            began_s = perf_counter()
            result = original(self, *args, **options)
            try:
                setattr(self, _DECODED, self.tell())
                pixels = self.size[0] * self.size[1]
                recorder.call("decode", perf_counter() - began_s, amount=pixels, key=_name(self), detail=detail)
            except Exception as error:
                fail(error)
            return result

        return decode

    hooks.put(getattr(sys.modules[module], kind), "load", make)


def _about(picture: Any) -> dict[str, Any]:
    width, height = picture.size
    settings = getattr(picture, "decoderconfig", None)  # set by `draft`, which has JPEGs decoded smaller
    divisor = settings[0] if picture.format == "JPEG" and settings and settings[0] else 1
    return {"format": picture.format, "width_px": width * divisor, "height_px": height * divisor, "divisor": divisor}


def _name(picture: Any) -> str | None:
    key = picture.filename or key_of(getattr(picture, "fp", None))
    return key if isinstance(key, str) else None


def _watch_decoders(recorder: Recorder, module: str, names: tuple[str, ...]) -> None:
    def make(original: Function, fail: Fail) -> Function:
        def decode(*args: Any, **options: Any) -> Any:
            began_s = perf_counter()
            array = original(*args, **options)
            try:
                shape: tuple[Any, ...] = tuple(getattr(array, "shape", ()))
                # tensors have channels first, arrays last
                sides = shape[-2:] if hasattr(array, "requires_grad") else shape[:2]
                height, width = (int(sides[0]), int(sides[1])) if len(sides) == 2 else (0, 0)
                source = args[0] if args else next(iter(options.values()), None)
                detail = {"width_px": width, "height_px": height}
                recorder.call("decode", perf_counter() - began_s, amount=width * height, key=key_of(source), detail=detail)
            except Exception as error:
                fail(error)
            return array

        return decode

    for name in names:
        hooks.put(sys.modules[module], name, make)


def _watch_saving(recorder: Recorder) -> None:
    import torch
    import torch.serialization

    hook = hooks.replace(torch.serialization, "save", partial(_timed_save, recorder))
    if hook is not None and torch.save is hook.original:
        torch.save = hook.replacement


def _watch_safetensors(recorder: Recorder) -> None:
    import safetensors.torch

    for name in ("save_file", "save_model"):
        hooks.replace(safetensors.torch, name, partial(_timed_save, recorder))


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
