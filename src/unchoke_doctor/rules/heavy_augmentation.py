"""Is each image warped on the CPU at a cost above its decoding: heavy transforms, at full size, scaled up, or by SciPy?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke_doctor.code.data import (
    FLOWS,
    HEAVY,
    MEMORY_DATASETS,
    SIZING,
    SMALL_SETS,
    WARPS,
    compositions,
    constants,
    edge_of,
    feeds,
    is_decode,
    known_size,
    listed_transforms,
    random_options,
    sample_functions,
    size_of,
)  # fmt: skip
from unchoke_doctor.code.program import Program
from unchoke_doctor.code.trace import argument_values, given, number, origins, value
from unchoke_doctor.code.training import handful
from unchoke_doctor.rules import Case, Hit

_DEAR_MS, _BEFORE_MS = 5.0, 3.0
"""Milliseconds per sample, by the table in `code/data.py`: what decoding a photograph of 800 × 600 px takes; before a resize."""
_LARGER, _FEW_PIXELS = 3, 32
"""Times by which an edge grows before that is worth a word; rounds of a loop that goes over something else than pixels."""
_SCALERS = (
    "Resize", "resize", "RandomResizedCrop", "transform", "aug_transforms", "flow_from_directory", "flow_from_dataframe",
    "image_dataset_from_directory", "load_img",
)  # fmt: skip
_ELSEWHERE = ("kornia", "keras", "tensorflow", "torch.nn", "keras_cv", "nvidia")
_SMALL_PX = 96
"""Edge of images that a warp hardly costs anything."""
_CHOICES = ("OneOf", "RandomChoice", "SomeOf")
_SLOW = re.compile(
    r"skimage\.(?:transform|filters|restoration|segmentation|feature|morphology)\.(?!AffineTransform)|scipy\.ndimage\.(?!label)"
    r"|skimage\.\w+\.(?:equalize_adapthist|rgb2lab)$|elasticdeform\."
    r"|cv2\.(?:fastNlMeans\w*|bilateralFilter|grabCut|createCLAHE|inpaint|watershed|findContours|HoughCircles)$"
)


def check(case: Case) -> Iterator[Hit]:
    yield from _pipelines(case)
    yield from _scaled_up(case)
    program, inside = case.program, sample_functions(case.program)
    calls = [call for call in program.calls if program.function(call) in inside and program.is_own(call)]
    if slow := [call for call in calls if _SLOW.match(program.name(call))]:
        said = f"`{program.text(slow[0].func)}` for each sample in every epoch: it takes longer than decoding the image"
        fix = "do it once and keep the result; resize with `cv2.resize` or PIL, filter the batch on the GPU (kornia)"
        yield case.hit(slow, said, fix, calls=sorted({program.last(call) for call in slow}))
    if pixels := _pixel_loops(program):
        said = "Python visits the pixels one by one: a hundred times slower than the same in NumPy, for each image"
        fix = (
            "write it with arrays: masks (`image[mask] = value`), `np.where`, a table that is indexed (`table[image]`), `cv2.LUT`"
        )
        yield case.hit(pixels, said, fix)
    yield from _generators(case)


def _pixel_loops(program: Program) -> list[ast.AST]:
    """`for y in range(height): for x in range(width): … image[y, x]`, for each sample or in a loop that reads images."""
    found: list[ast.AST] = []
    for inner in program.loops:
        outer = program.loop(inner)
        match outer, inner:
            case (
                ast.For(target=ast.Name(id=y), iter=ast.Call(func=ast.Name(id="range"), args=[first, *_])),
                ast.For(target=ast.Name(id=x), iter=ast.Call(func=ast.Name(id="range"), args=[second, *_])),
            ) if program.is_own(inner):
                few = any((count := number(program, part)) is not None and 0 < count < _FEW_PIXELS for part in (first, second))
                names = [{one.id for one in ast.walk(part) if isinstance(one, ast.Name)} for part in _subscripts(inner)]
                steps = len(outer.iter.args) == 3 or len(inner.iter.args) == 3  # type: ignore[attr-defined]
                if not few and not steps and any({x, y} <= some for some in names) and _is_per_image(program, outer):
                    found.append(outer)
    return found


def _subscripts(loop: ast.AST) -> Iterator[ast.AST]:
    """The indices of `image[y, x]` and `image[y][x]`."""
    for part in ast.walk(loop):
        if isinstance(part, ast.Subscript):
            yield ast.Tuple([part.slice, *([part.value.slice] if isinstance(part.value, ast.Subscript) else [])])


def _is_per_image(program: Program, node: ast.AST) -> bool:
    """In a function that runs for each sample, or in a loop that decodes images."""
    function = program.function(node)
    loops = [
        loop for part in (node, *(program.callers(function) if function is not None else ())) if (loop := program.loop(part))
    ]
    reads = (
        loop for loop in loops if not handful(program, loop) and any(is_decode(program, call) for call in program.reached(loop))
    )
    return function in sample_functions(program) or next(reads, None) is not None


def _pipelines(case: Case) -> Iterator[Hit]:
    """Pipelines with heavy work in front of their resize, and pipelines that cost more than decoding; each is one finding."""
    program = case.program
    early: dict[ast.AST, tuple[list[str], ast.Call]] = {}
    dear: dict[ast.AST, list[str]] = {}
    for call in compositions(program):
        if not program.is_own(call) or program.name(call).startswith(_ELSEWHERE):
            continue
        steps = list(listed_transforms(program, call))
        costs = {step: cost for step in steps if (cost := _cost_ms(program, step))}
        sizing = next((step for step in steps if program.last(step) in SIZING), None)
        before = [step for step in steps[: steps.index(sizing)] if step in costs] if sizing is not None else []
        edge = size_of(program, sizing) if sizing is not None else None
        if edge is not None and not before:  # how the pixels that are touched compare with a photograph of 500 px
            scale = min(1.0, (edge / 500) ** 2)
        else:
            size = known_size(constants(program))
            scale = size[0] * size[1] / 250_000 if size else 1.0
        if sizing is not None and sum(costs[step] for step in before) >= _BEFORE_MS:
            early[before[0]] = list(dict.fromkeys(program.last(step) for step in before)), sizing
        elif sum(costs.values()) * scale >= _DEAR_MS:
            ordered = sorted(costs, key=costs.__getitem__, reverse=True)
            dear[next(iter(costs))] = list(dict.fromkeys(program.last(step) for step in ordered))
    for names, sizing in list(early.values())[:1]:
        resize = program.text(sizing, 40)
        said = f"`{'` and `'.join(names)}` on the full image, before `{resize}` makes it small"
        fix = f"move `{resize}` to the front: the same augmentation then touches only the pixels the network sees"
        yield case.hit(early, said, fix, before_resize=names, edge_px=size_of(program, sizing))
    for names in list(dear.values())[:1]:
        said = f"`{'`, `'.join(names[:4])}` run on the CPU for each sample: together they cost more than decoding the image"
        fix = "apply them to the batch on the GPU (kornia, torchvision v2), lower their `p`, or keep those that raise the score"
        yield case.hit(dear, said, fix, transforms=names)


def _cost_ms(program: Program, step: ast.Call) -> float:
    """Expected cost for a photograph of 500 px: its share in a `OneOf` and its probability counted in."""
    cost = float(HEAVY.get(program.last(step), 0))
    if not cost or program.name(step).startswith(_ELSEWHERE):
        return 0.0
    group = next((one for one in program.above(step) if isinstance(one, ast.Call) and program.last(one) in _CHOICES), None)
    chance = number(program, given(program, group or step, "p"))
    share = chance if chance is not None else 0.5 if "albumentations" in program.name(step) else 1.0
    if group is not None:
        first = given(program, group, "transforms", 0)
        share /= max(1, len(first.elts)) if isinstance(first, ast.List | ast.Tuple) else 2
    return cost * min(1.0, max(share, 0.0))


def _scaled_up(case: Case) -> Iterator[Hit]:
    """Small images of a known set that are resized to the network's input, one by one."""
    program, places = case.program, dict[ast.AST, int]()
    text = "\n".join(constants(program))
    edge = max((MEMORY_DATASETS[program.last(call)] for call in program.calls_to(*MEMORY_DATASETS)), default=0)
    edge = edge or next((edge for sign, edge in SMALL_SETS if sign.search(text)), 0)
    for call in program.own_calls(*_SCALERS) if edge else ():
        words = [word.value for word in call.keywords if word.arg in ("size", "target_size", "image_size", "dsize")]
        words += call.args[1:2] if program.last(call) == "resize" else []
        sizes = [one if isinstance(one, tuple) else (one,) for one in (value(program, part) for part in words)]
        larger = size_of(program, call) or max((one for size in sizes for one in size if isinstance(one, int)), default=0)
        if larger >= _LARGER * edge:
            places[call] = larger
    if places:
        size = max(places.values())
        told = f"images of {edge} px are scaled up to {size} px, {(size / edge) ** 2:.0f} times the pixels"
        fix = (
            "scale the batch up on the GPU (`torch.nn.functional.interpolate(images, size=…)` before the network), or train at "
            "the images' own size with a smaller first stride"
        )
        yield case.hit(places, f"{told}, for each sample in every epoch", fix)


def _generators(case: Case) -> Iterator[Hit]:
    """A Keras `ImageDataGenerator` that warps: SciPy, one image at a time, in Python."""
    program = case.program
    found: dict[ast.AST, tuple[list[str], list[ast.AST], bool]] = {}
    for training in case.trainings:
        if training.kind != "keras" or not isinstance(training.node, ast.Call):
            continue
        cheap = any(isinstance(n, int) and n > 1 for n in argument_values(program, training.node, "workers", None, 1))
        flows = [feed.call.func for feed in feeds(program, training.data) if program.last(feed.call) in FLOWS]
        sizes = [value(program, given(program, feed.call, "target_size", 1)) for feed in feeds(program, training.data)]
        cheap = cheap or any(0 < edge_of(size) <= _SMALL_PX for size in sizes)
        for maker in (end for flow in flows if isinstance(flow, ast.Attribute) for end in origins(program, flow.value)):
            warps = [name for name in random_options(program, maker) if name in WARPS] if isinstance(maker, ast.Call) else []
            if warps and program.is_own(maker):
                found.setdefault(maker, (warps, [maker], cheap))[1].append(training.node)
    for warps, nodes, cheap in list(found.values())[:1]:
        epoch, images = case.outputs.epoch_s(), case.outputs.images
        rate = f" ({images / epoch:.0f} images per second by the saved outputs)" if epoch and images else ""
        said = f"`ImageDataGenerator` with `{'`, `'.join(warps)}` warps each image with SciPy in one Python thread{rate}"
        fix = (
            "put layers (`RandomRotation`, `RandomZoom`, `RandomTranslation`, `RandomFlip`) in front of the model, which run on "
            "the batch, and give `fit` the arrays or a `tf.data` pipeline"
        )
        yield case.hit([node for node in nodes if program.is_own(node)], said, fix, "note" if cheap else "choke", options=warps)
