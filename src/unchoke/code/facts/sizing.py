"""How per-sample code brings an image to its size: resizes in the code itself and in the transform pipelines that it applies.

In comes a per-sample record, out go `Resize` records in order, and whether a random crop does the sizing. A pipeline is followed
from `self.transform(image)` through the constructor to where it was put together, also through dicts, lists and helper functions.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from unchoke.code.facts.keeping import is_kept
from unchoke.code.facts.origins import is_random
from unchoke.code.facts.per_sample import AnyFunction, SampleFunction, reached_functions
from unchoke.code.node_index import arguments, remembered
from unchoke.code.program import Program

_RESIZERS = frozenset(
    {"cv2.resize", "tf.image.resize", "tf.image.resize_with_pad", "tf.image.resize_images", "skimage.transform.resize",
     "torchvision.transforms.functional.resize", "torchvision.transforms.v2.functional.resize", "PIL.ImageOps.fit",
     "PIL.ImageOps.pad", "PIL.ImageOps.contain", "imutils.resize", "scipy.misc.imresize", "mmcv.imresize",
     "torch.nn.functional.interpolate", "tf.keras.preprocessing.image.smart_resize", "scipy.ndimage.zoom",
     "tf.image.resize_with_crop_or_pad", "tf.keras.ops.image.resize", "tf.image.resize_image_with_pad"}
)  # fmt: skip
_METHODS = frozenset({"resize", "thumbnail"})
PIPELINE_RESIZERS = frozenset({"Resize", "Resizing", "LongestMaxSize", "SmallestMaxSize", "Resized", "Scale"})
RANDOM_SIZERS = frozenset({"RandomResizedCrop", "RandomSizedCrop", "RandomSizedBBoxSafeCrop", "RandomResizedCropd"})


@dataclass(frozen=True, eq=False)
class Resize:
    """`size_px` is the shorter side where it is stated; `pipeline` is None for a call in the code itself."""

    call: ast.Call
    size_px: int | None
    pipeline: ast.expr | None = None


@dataclass
class Sizing:
    """What sizes the images of one per-sample function."""

    resizes: list[Resize] = field(default_factory=list)
    by_random_crop: bool = False


@remembered
def sizing(program: Program, record: SampleFunction) -> Sizing:
    """Resizes of a per-sample function: its own first, then those of its pipelines."""
    functions = functions_run(program, record)
    found = Sizing([item for function in functions for item in _in_code(program, function)])
    for expression in _pipelines(program, functions):
        calls = list(program.made_of(expression, contents=True))
        fixed = [Resize(call, size_of(program, call), expression) for call in calls if _is_resize(program, call)]
        found.by_random_crop |= any(_is_sized_alone(program, call) for call in calls if program.method(call) in RANDOM_SIZERS)
        found.resizes += fixed
        own = [program.callable_of(call) for call in calls if program.method(call) in program.classes]  # transforms of the file
        found.resizes += [item for function in own if function is not None for item in _in_code(program, function)]
    return found


def functions_run(program: Program, record: SampleFunction) -> list[AnyFunction]:
    """The function, what it reaches, and the functions that later `.map` calls of the same pipeline run."""
    found = list(reached_functions(program, [record]))
    for call in program.calls_to("map") if record.kind == "map" else ():
        earlier = program.made_of(program.receiver(call))
        if any(program.callable_of(item.args[0]) is record.function for item in earlier if item.args):
            later = program.callable_of(call.args[0]) if call.args else None
            found += [later] if later is not None and later not in found else []
    return found


def size_of(program: Program, call: ast.Call) -> int | None:
    """The shorter side in pixels, where a resize states it."""
    position = 0 if program.method(call) in PIPELINE_RESIZERS or program.name(call).startswith("?.") else 1
    for name in ("size", "dsize", "output_shape", "height", "max_size", "target_size"):
        given = program.argument(call, name, position if name == "size" else None)
        value = program.value(given) if given is not None else None
        sides = [side for side in (value if isinstance(value, tuple) else (value,)) if isinstance(side, int) and side > 8]
        if sides:
            return min(sides)
    return None


def _in_code(program: Program, function: AnyFunction) -> Iterator[Resize]:
    for call in program.within(function, ast.Call):
        sizes = arguments(call)[0 if program.name(call).startswith("?.") else 1 :]
        if is_resizing(program, call) and not is_kept(program, call) and not any(is_random(program, item) for item in sizes):
            yield Resize(call, size_of(program, call))


def is_resizing(program: Program, call: ast.Call) -> bool:
    """A call that resizes an image, here and now."""
    name = program.name(call)
    if name in _RESIZERS:
        return True
    if name.endswith(".load_img"):
        return program.argument(call, "target_size", 2) is not None
    if not name.startswith("?.") or name[2:] not in _METHODS or program.function_of(call) is not None:
        return False
    return bool(call.args or call.keywords)


def _is_resize(program: Program, call: ast.Call) -> bool:
    named = isinstance(call.func, ast.Name | ast.Attribute) and program.method(call) in PIPELINE_RESIZERS
    return named and program.method(call) not in program.classes


def _is_sized_alone(program: Program, call: ast.Call) -> bool:
    """Is there no resize in the list that this random crop stands in?"""
    steps = program.parent(call)
    inner = program.within(steps, ast.Call) if isinstance(steps, ast.List | ast.Tuple) else iter(())
    return not any(_is_resize(program, other) for other in inner)


def _pipelines(program: Program, functions: list[AnyFunction]) -> Iterator[ast.expr]:
    """What is called and is no function of the file nor of a library: `self.transform`, `prep`, `tfms[split]`."""
    for function in functions:
        for call in program.within(function, ast.Call):
            if program.function_of(call) is not None and not isinstance(call.func, ast.Call):
                continue
            name = program.name(call)
            is_method = name.startswith("?.") and not program.written(call.func).startswith("self.")
            if not is_method and (name.startswith("?.") or "." not in name):
                yield call.func
