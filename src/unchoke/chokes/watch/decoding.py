"""Pixels that the script decodes, and what it does to pictures afterwards: Pillow, OpenCV, torchvision and other decoders.

In: those libraries, as the script imports them. Out: calls of the kinds decode (amount: pixels decoded; key: the file, or a
checksum of its bytes; detail: format, size in the file, and the divisor if it was decoded smaller), resize and crop (pixels
that came out), transform (pixels that went in) and to_array (pixels that left Pillow as bytes). Pillow decodes when pixels are
first needed: that is the moment watched. Times leave out timed calls inside them. Transforms written in NumPy or torch are seen
by the sampler alone.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from unchoke.chokes.watch import hooks
from unchoke.chokes.watch.hooks import Announce, CallFacts, Describe, argument, key_of, time_announced, time_when_imported
from unchoke.chokes.watch.recorder import Recorder

_DECODERS = {
    "cv2": ("imread", "imdecode"),
    "simplejpeg": ("decode_jpeg",),
    "torchvision.io": ("read_image", "decode_image", "decode_jpeg", "decode_png", "decode_gif", "decode_webp", "decode_avif"),
    "imageio": ("imread",),
    "imageio.v2": ("imread",),
    "imageio.v3": ("imread",),
    "skimage.io": ("imread",),
    "tifffile": ("imread",),
    "matplotlib.image": ("imread",),
}
"""Functions that take a path or bytes and give an array or a tensor."""
_LOADING = {
    "PIL.ImageFile": "ImageFile",
    "PIL.TiffImagePlugin": "TiffImageFile",
    "PIL.Jpeg2KImagePlugin": "Jpeg2KImageFile",
}
"""Pillow's classes whose `load` decodes what their list of tiles says."""
_LOADING_FRAMES = {"PIL.WebPImagePlugin": "WebPImageFile", "PIL.AvifImagePlugin": "AvifImageFile"}
"""Those that make the list while they decode."""
_PILLOW_TRANSFORMS = ("convert", "filter", "point", "quantize", "rotate", "transform", "transpose")
_OPENCV_TRANSFORMS = (
    "GaussianBlur", "LUT", "addWeighted", "bilateralFilter", "blur", "cvtColor", "dilate", "equalizeHist", "erode", "filter2D",
    "flip", "fastNlMeansDenoisingColored", "medianBlur", "normalize", "remap", "rotate", "warpAffine", "warpPerspective",
)  # fmt: skip
_FRAME = "_unchoke_decoded_frame"


def install(recorder: Recorder) -> None:
    """Watch each library from the moment it is imported."""
    for module, place, kind, describe in _CALLS:
        time_when_imported(recorder, module, place, kind, describe)
    for classes, announce in ((_LOADING, _about_load), (_LOADING_FRAMES, _about_frame)):
        for module, name in classes.items():
            hooks.when_imported(module, partial(_watch_loading, recorder, module, name, announce))


def _watch_loading(recorder: Recorder, module: str, name: str, announce: Announce) -> None:
    time_announced(recorder, getattr(sys.modules[module], name), "load", "decode", announce)


def _about_load(args: tuple[Any, ...], _: dict[str, Any]) -> CallFacts | None:
    """Only the first load decodes: it uses up the picture's list of tiles."""
    picture = args[0]
    return _about_file(picture) if picture.tile else None


def _about_frame(args: tuple[Any, ...], _: dict[str, Any]) -> CallFacts | None:
    """Formats that make their tiles while loading: once for each frame."""
    picture = args[0]
    frame = picture.tell()
    if vars(picture).get(_FRAME) == frame:
        return None
    setattr(picture, _FRAME, frame)
    return _about_file(picture)


def _about_file(picture: Any) -> CallFacts:
    width, height = picture.size
    settings = getattr(picture, "decoderconfig", None)  # set by `draft`, which has JPEGs decoded smaller
    divisor = settings[0] if picture.format == "JPEG" and settings and settings[0] else 1
    detail = {"format": picture.format, "width_px": width * divisor, "height_px": height * divisor, "divisor": divisor}
    key = picture.filename or key_of(getattr(picture, "fp", None))
    return {"amount": width * height, "key": key if isinstance(key, str) else None, "detail": detail}


def _decoded(array: Any, args: tuple[Any, ...], options: dict[str, Any]) -> CallFacts | None:
    if array is None:  # OpenCV's way of failing
        return None
    source: Any = args[0] if args else next(iter(options.values()), None)
    arrays = array if isinstance(array, list) else [array]
    pixels = sum(_num_pixels(one) for one in arrays)
    width, height = _size(arrays[0]) if arrays else (0, 0)
    holds_bytes = type(source).__module__ == "numpy" and source.flags.c_contiguous
    key = key_of(source.data if holds_bytes else source)
    return {"amount": pixels, "key": key, "detail": {"width_px": width, "height_px": height}}


def _num_pixels(array: Any) -> int:
    width, height = _size(array)
    return width * height


def _size(array: Any) -> tuple[int, int]:
    """Width and height: the last two dimensions of a tensor (channels first), the first two of an array."""
    shape = getattr(array, "shape", ())
    if len(shape) < 2:
        return 0, 0
    rows, columns = (-2, -1) if hasattr(array, "requires_grad") else (0, 1)
    return int(shape[columns]), int(shape[rows])


def _picture_made(picture: Any, args: tuple[Any, ...], _: dict[str, Any]) -> CallFacts:
    width, height = args[0].size
    return {"amount": picture.width * picture.height, "detail": {"from_px": [width, height], "to_px": list(picture.size)}}


def _picture_changed(_: Any, args: tuple[Any, ...], __: dict[str, Any]) -> CallFacts:
    return {"amount": args[0].width * args[0].height, "detail": {"to_px": list(args[0].size)}}


def _picture_transformed(name: str, _: Any, args: tuple[Any, ...], __: dict[str, Any]) -> CallFacts:
    return {"amount": args[0].width * args[0].height, "detail": {"name": name, "from_px": list(args[0].size)}}


def _picture_made_by(name: str, picture: Any, _: tuple[Any, ...], __: dict[str, Any]) -> CallFacts:
    return {"amount": picture.width * picture.height, "detail": {"name": name, "from_px": list(picture.size)}}


def _array_resized(array: Any, args: tuple[Any, ...], options: dict[str, Any]) -> CallFacts:
    source = argument(args, options, 0, "src")
    return {"amount": _num_pixels(array), "detail": {"from_px": list(_size(source)), "to_px": list(_size(array))}}


def _array_transformed(name: str, _: Any, args: tuple[Any, ...], options: dict[str, Any]) -> CallFacts:
    source = argument(args, options, 0, "src")
    return {"amount": _num_pixels(source), "detail": {"name": name, "from_px": list(_size(source))}}


def _chain_run(_: Any, args: tuple[Any, ...], options: dict[str, Any]) -> CallFacts:
    picture = argument(args, options, 1, "img")
    size = getattr(picture, "size", None)
    pixels = size[0] * size[1] if isinstance(size, tuple) and len(size) == 2 else _num_pixels(picture)
    return {"amount": pixels, "detail": {"name": "Compose"}}


_CALLS: tuple[tuple[str, str, str, Describe], ...] = (
    *((module, name, "decode", _decoded) for module, names in _DECODERS.items() for name in names),
    ("turbojpeg", "TurboJPEG.decode", "decode", lambda array, args, _: _decoded(array, args[1:], {})),
    ("PIL.Image", "Image.resize", "resize", _picture_made),
    ("PIL.Image", "Image.reduce", "resize", _picture_made),
    ("PIL.Image", "Image.thumbnail", "resize", _picture_changed),
    ("PIL.Image", "Image.crop", "crop", _picture_made),
    *(("PIL.Image", f"Image.{name}", "transform", partial(_picture_transformed, name)) for name in _PILLOW_TRANSFORMS),
    ("PIL.Image", "Image.tobytes", "to_array", _picture_changed),
    ("PIL.ImageEnhance", "_Enhance.enhance", "transform", partial(_picture_made_by, "enhance")),
    ("cv2", "resize", "resize", _array_resized),
    *(("cv2", name, "transform", partial(_array_transformed, name)) for name in _OPENCV_TRANSFORMS),
    ("torchvision.transforms.transforms", "Compose.__call__", "transform", _chain_run),
)
"""What is timed: where it stands in which module, the kind of call, and what says what it was about.

A whole chain of torchvision's transforms is one call; what Pillow does inside it is counted by itself.
"""
