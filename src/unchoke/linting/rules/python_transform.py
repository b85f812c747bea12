"""A Python loop over pixels.

A picture of 224 x 224 has 50,176 pixels, and a nested `for` runs its body in the interpreter for each of them, for every
sample in every epoch. numpy, torch and OpenCV do the same arithmetic in compiled code: in the script measured for
docs/claims.md it was 98 % of the time (5.6 s became 0.1 s). Workers only share it out. A list that gets every pixel as an object
(`values.extend(image.flatten())`) and a mask that is compared as a whole with each of many colours are the same mistake.

**Write instead.** The same over whole arrays:

    out = np.where(2.0 * image[..., 1] - image[..., 0] - image[..., 2] < 12, 127, image)      # a condition
    classes = table[mask[..., 0], mask[..., 1], mask[..., 2]]                                  # a lookup of colours

What depends on its neighbours is a filter (`cv2.filter2D`, `scipy.ndimage`); what cannot be written so can be compiled
(`numba.njit`). If its result is the same each time, do it once before training.

**When this is fine.** Loops over tiles, bands, boxes or the samples of a batch (what they pick is an array, not a number), loops
in a function compiled by numba, and one small picture in a script that runs once: outside the code of a sample, and where no
picture is decoded, it is a nit, and so are a loop over rows, which may be short lists, and a mask compared with colour after
colour.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from dataclasses import replace

from unchoke.code.facts.loops import unwrapped
from unchoke.code.facts.stakes import reads_pictures
from unchoke.code.facts.vocabulary import DECODERS, words
from unchoke.code.node_index import FunctionNode, names_in
from unchoke.code.program import Program
from unchoke.linting.questions import whole_round
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    group="input",
    stage="transform",
    title="Python loop over pixels, or over the whole picture for each class",
    gain="5.6 s to 0.1 s for a script that did little else",
    claim="Planted chokes",
    eased_by=("no-workers", "repeated-decode", "heavy-augmentation"),
)

SampleLoop = ast.For | ast.comprehension
_SMALL = 32
_SEVERAL = 4
_SIDES = frozenset(
    {"h", "w", "height", "width", "rows", "cols", "row", "col", "size", "side", "ht", "wd", "nrows", "ncols", "hgt"}
)
_PICTURES = frozenset(
    {"img", "image", "im", "mask", "pixels", "arr", "array", "rgb", "bgr", "frame", "tile", "patch", "chip", "raster", "seg",
     "photo", "depth", "thermal", "gray", "grey", "picture", "hsv", "lab", "canvas"}
)  # fmt: skip
_THINGS = frozenset(
    {"batch", "batches", "detections", "boxes", "objects", "patches", "tiles", "samples", "images", "classes", "num", "n"}
)  # fmt: skip
_ONE_PIXEL = ("getpixel", "putpixel", "item", "itemset")
_MASKS = frozenset({"mask", "masks", "label", "seg", "segmentation", "annotation", "gt", "target"})
_PIECES = frozenset({"patch", "patches", "tile", "tiles", "crop", "crops", "window", "windows", "grid", "blocks"})
_OF_ARRAYS = frozenset({"shape", "ndim", "unsqueeze", "reshape", "view", "flatten", "ravel", "permute", "transpose", "resize"})
_COMPILED = frozenset({"njit", "jit", "guvectorize", "vectorize", "kernel", "stencil"})
_DRAWN = frozenset({"text", "annotate", "subplot", "add_subplot", "imshow"})


def check(program: Program) -> Iterator[Hit]:
    taken: set[ast.AST] = set()
    for loop in program.nodes(ast.For, ast.comprehension):
        if loop in taken or _is_compiled(program, loop):
            continue
        of_sample = program.facts.in_per_sample(loop) is not None
        if of_sample and _is_class_by_class(program, loop):
            yield _class_hit(program, loop)
            continue
        inner = [item for item in program.within(whole_round(program, loop), ast.For, ast.comprehension) if item is not loop]
        by_index = any(_by_index(program, loop, item) for item in inner)
        nested = by_index or any(_by_row(program, loop, item) for item in inner)
        if nested and (of_sample or _is_surely_picture(program, loop, inner)):
            taken.update(inner)
            hit = _pixel_hit(program, loop, of_sample=of_sample)
            yield hit if by_index else replace(hit, kind="nit")  # rows may be lists, written down by hand
    yield from _gathered(program)


def _pixel_hit(program: Program, loop: SampleLoop, *, of_sample: bool) -> Hit:
    function = program.enclosing_function(loop)
    where = f"`{function.name}`" if function is not None else "this"
    over = program.text(loop.iter)
    return Hit(
        whole_round(program, loop),
        f"{where} visits pixels one by one in Python (`for {program.text(loop.target)} in {over}`)"
        + (", for every sample" if of_sample else ""),
        evidence={"function": function.name if function is not None else "", "over": over},
        fix="write it over whole arrays (`np.where`, a lookup table, `cv2.filter2D`), or compile it with `numba.njit`",
        kind=None if of_sample and reads_pictures(program) else "nit",
    )


def _is_surely_picture(program: Program, loop: SampleLoop, inner: list[SampleLoop]) -> bool:
    """Outside per-sample code there are other tables: what is visited must be a picture by name or make, and not be drawn."""
    whole = whole_round(program, loop)
    calls = list(program.within(whole, ast.Call))
    picked = _picked(program, whole, [names_in(item.target) for item in (loop, *inner)])
    held = [node.value.value if isinstance(node.value, ast.Subscript) else node.value for node in picked]
    held += [item for call in calls if program.method(call) in _ONE_PIXEL and (item := program.receiver(call)) is not None]
    pictures = (item for item in held if _is_picture(program, item) and not _PIECES & set(words(program.written(item))))
    return any(pictures) and not any(program.method(call) in _DRAWN for call in calls)


def _picked(program: Program, whole: ast.AST, counters: list[set[str]]) -> list[ast.Subscript]:
    """`mask[y, x]`, `mask[y][x]`, `mask[y, x, :]`: what two of the counters pick, but no planes: `volume[z, :, :, c]`."""
    found = []
    for node in program.within(whole, ast.Subscript):
        keys = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        keys += [node.value.slice] if isinstance(node.value, ast.Subscript) else []
        plain = [names_in(key) for key in keys if not isinstance(key, ast.Slice)]
        whole_planes = len(keys) - len(plain) > 1 or any(program.value(key) is Ellipsis for key in keys)
        pairs = list(itertools.permutations(plain, 2))
        pairs += [(key, key) for key in plain if _SIDES & set(words(program.text(node.slice)))]  # `pixels[y * width + x]`
        each = any(
            one & first and other & second for one, other in itertools.combinations(counters, 2) for first, second in pairs
        )
        if each and not whole_planes:
            found.append(node)
    return found


def _is_compiled(program: Program, node: ast.AST) -> bool:
    around = (above for above in program.ancestors(node) if isinstance(above, FunctionNode))
    return any(program.method(mark) in _COMPILED for function in around for mark in function.decorator_list)


def _gathered(program: Program) -> Iterator[Hit]:
    """`values.extend(image.flatten())`: an object of Python for every pixel."""
    for call in program.calls_to("extend"):
        given = call.args[0] if call.args else None
        if program.method(given) in ("flatten", "ravel", "tolist", "getdata") and program.loops_around(call):
            held = program.receiver(given)
            while isinstance(held, ast.Call):
                held = program.receiver(held)
            name = program.written(program.receiver(call)) or "a list"
            if _is_picture(program, held):
                yield Hit(
                    call,
                    f"`{name}` gets one Python object for each pixel of each picture: some 30 bytes each, added one by one",
                    evidence={"list": name},
                    fix="add up sums and counts picture by picture (`image.sum()`, `np.bincount`), or keep the arrays and join "
                    "them once with `np.concatenate`",
                    kind="nit",
                )


# Once over the whole picture for each class


def _is_class_by_class(program: Program, loop: SampleLoop) -> bool:
    """`for colour in colours: np.all(np.equal(mask, colour), axis=-1)`; comparing single numbers is cheap."""
    classes, names = program.value(unwrapped(program, loop.iter)), names_in(loop.target)
    several = not isinstance(classes, tuple) or len(classes) >= _SEVERAL
    parts = list(program.within(whole_round(program, loop), ast.Compare, ast.Call))
    colours = any(program.method(part) == "all" for part in parts)
    return several and colours and any(_compares_picture(program, part, names) for part in parts)


def _compares_picture(program: Program, part: ast.Compare | ast.Call, names: set[str]) -> bool:
    if isinstance(part, ast.Compare):
        sides = [part.left, part.comparators[0]] if isinstance(part.ops[0], ast.Eq) else []
    else:
        sides = part.args[:2] if program.name(part) in ("numpy.equal", "torch.eq") else []
    masks = [side for side in sides if isinstance(side, ast.Name) and side.id not in names and _MASKS & set(words(side.id))]
    return bool(masks) and any(names_in(side) & names for side in sides)


def _class_hit(program: Program, loop: SampleLoop) -> Hit:
    over, whole = program.text(loop.iter), whole_round(program, loop)
    return Hit(
        whole,
        f"the whole mask is compared with each of `{over}`, for every sample",
        evidence={"over": over},
        fix="turn masks into class numbers once, before training (uint8 files), and let the loss take those, or make them "
        "one-hot on the device",
        kind="nit",
    )


# Two loops, over rows and over the pixels of a row


def _by_index(program: Program, outer: SampleLoop, inner: SampleLoop) -> bool:
    """`for y in range(h): for x in range(w): … image[y, x] …`, `image.getpixel((x, y))`"""
    ends = [_range_end(program, loop.iter) for loop in (outer, inner)]
    if not _are_sides(program, ends):
        return False
    whole, counters = whole_round(program, inner), [names_in(outer.target), names_in(inner.target)]
    picked = _picked(program, whole, counters)
    called = (call for call in program.within(whole, ast.Call) if program.method(call) in _ONE_PIXEL)
    one_by_one = bool(picked) or any(all(own & names_in(call) for own in counters) for call in called)
    return one_by_one and not any(_is_array(program, node, whole) for node in picked)


def _is_array(program: Program, node: ast.expr, whole: ast.AST | None = None) -> bool:
    """Is what both counters pick more than a pixel: its shape asked for, cut, run through a network, or filled with a window?"""
    parent = program.parent(node)
    if isinstance(parent, ast.Attribute):
        return parent.attr in _OF_ARRAYS
    if isinstance(parent, ast.Subscript):
        return parent.value is node and _has_slice(program, parent)
    if isinstance(parent, ast.Call):
        return node in parent.args and program.facts.is_forward(parent)
    if isinstance(parent, ast.Assign) and node in parent.targets:
        return _has_slice(program, parent.value)
    if not isinstance(parent, ast.Assign) or whole is None:
        return False
    names = {name for target in parent.targets for name in names_in(target)}
    uses = [use for use in program.within(whole, ast.Name) if use.id in names and isinstance(use.ctx, ast.Load)]
    return any(_is_array(program, use) for use in uses)


def _has_slice(program: Program, node: ast.expr) -> bool:
    return isinstance(node, ast.Subscript) and any(True for _ in program.within(node.slice, ast.Slice))


def _range_end(program: Program, node: ast.expr) -> ast.expr | None:
    call = unwrapped(program, node)
    counts = program.method(call) in ("range", "xrange", "arange", "prange", "trange")
    return call.args[:2][-1] if isinstance(call, ast.Call) and counts and call.args else None


def _are_sides(program: Program, ends: list[ast.expr | None]) -> bool:
    """Two or more counts, none small or of other things, one a height or a width: a number, `image.shape[0]`, `len(rows[0])`."""
    given = [end for end in ends if end is not None]
    numbers = [value for end in given if isinstance(value := program.value(end), int | float)]
    lengths = [call.args[0] for call in program.calls_in(given) if program.name(call) == "len" and call.args]
    texts = [program.text(end) for end in given]
    sides = any(_SIDES & set(words(text)) or ".shape" in text for text in texts)
    sides = sides or any(isinstance(item, ast.Subscript) for item in lengths)
    others = any(_THINGS & set(words(text)) for text in texts)
    return 2 <= len(given) == len(ends) and not others and min(numbers, default=_SMALL) >= _SMALL and (bool(numbers) or sides)


def _by_row(program: Program, outer: SampleLoop, inner: SampleLoop) -> bool:
    """`for row in mask: for pixel in row: …`, `for y in range(h): for pixel in mask[y]: …`"""
    rows, over = names_in(outer.target), unwrapped(program, inner.iter)
    if isinstance(over, ast.Subscript):
        end = _range_end(program, outer.iter)
        return _are_sides(program, [end, end]) and program.written(over.slice) in rows and _is_picture(program, over.value)
    return isinstance(over, ast.Name) and over.id in rows and _is_picture(program, unwrapped(program, outer.iter))


def _is_picture(program: Program, node: ast.expr | None) -> bool:
    """By what made it, or by its name."""
    name = program.written(node).rpartition(".")[2]
    return bool(_PICTURES & set(words(name))) or (bool(name) and program.made_by(node) in DECODERS)
