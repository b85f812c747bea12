"""A Python loop over the pixels of each sample.

A picture of 224 x 224 has 50,176 pixels, and a nested `for` runs its body in the interpreter for each of them, for every
sample in every epoch. numpy, torch and OpenCV do the same arithmetic in compiled code: in the script measured for
docs/claims.md it was 98 % of the time (5.6 s became 0.1 s). Workers only share it out.

**Write instead.** The same over whole arrays:

    out = np.where(2.0 * image[..., 1] - image[..., 0] - image[..., 2] < 12, 127, image)      # a condition
    classes = table[mask[..., 0], mask[..., 1], mask[..., 2]]                                  # a lookup of colours

What depends on its neighbours is a filter (`cv2.filter2D`, `scipy.ndimage`); what cannot be written so can be compiled
(`numba.njit`). If its result is the same each time, do it once before training.

**When this is fine.** Loops over tiles, bands, boxes or the samples of a batch, loops in a function compiled by numba, and
whatever runs once in a preparation script.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.facts.vocabulary import DECODERS, words
from unchoke.code.node_index import names_in
from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    code="python-transform",
    group="input",
    stage="transform",
    title="Python loop over the pixels of each sample",
    gain="5.6 s to 0.1 s for a script that did little else",
    claim="Planted chokes",
)

SampleLoop = ast.For | ast.comprehension
_SMALL = 32
_SIDES = frozenset(
    {"h", "w", "height", "width", "rows", "cols", "row", "col", "size", "side", "ht", "wd", "nrows", "ncols", "hgt"}
)
_PICTURES = frozenset(
    {"img", "image", "im", "mask", "pixels", "arr", "array", "rgb", "bgr", "frame", "tile", "patch", "chip", "raster", "seg",
     "photo", "depth", "thermal", "gray", "grey", "picture", "hsv", "lab", "canvas"}
)  # fmt: skip
_PIXELS = frozenset({"flatten", "ravel", "getdata", "tolist", "reshape", "nditer", "ndindex", "ndenumerate", "product"})
_ONE_PIXEL = ("getpixel", "putpixel", "item", "itemset")
_COMPILED = frozenset({"njit", "jit", "guvectorize", "vectorize", "kernel", "stencil"})


def check(program: Program) -> Iterator[Hit]:
    taken: set[ast.AST] = set()
    for loop in program.nodes(ast.For, ast.comprehension):
        if loop in taken or program.facts.in_per_sample(loop) is None or _is_compiled(program, loop):
            continue
        inner = _inner_loops(program, loop)
        pixels = _over_pixels(program, loop)
        if not pixels and not any(_nested_over_pixels(program, loop, other) for other in inner):
            continue
        taken.update(inner)
        function = program.enclosing_function(loop)
        where = f"`{function.name}`" if function is not None else "the function"
        over = program.text(loop.iter)
        yield Hit(
            program.parent(loop) or loop if isinstance(loop, ast.comprehension) else loop,
            f"{where} visits pixels one by one in Python (`for {program.text(loop.target)} in {over}`), for every sample",
            evidence={"function": function.name if function is not None else "", "over": over},
            fix="write it over whole arrays (`np.where`, a lookup table, `cv2.filter2D`), or compile it with `numba.njit`",
        )


def _is_compiled(program: Program, node: ast.AST) -> bool:
    function = program.enclosing_function(node)
    while function is not None:
        if any(program.method(mark) in _COMPILED for mark in function.decorator_list):
            return True
        function = program.enclosing_function(function)
    return False


def _body(program: Program, loop: SampleLoop) -> list[ast.AST]:
    """What runs on each round."""
    if isinstance(loop, ast.For):
        return list(loop.body)
    owner = program.parent(loop)
    if isinstance(owner, ast.DictComp):
        return [owner.key, owner.value]
    return [owner.elt] if isinstance(owner, ast.ListComp | ast.SetComp | ast.GeneratorExp) else []


def _inner_loops(program: Program, loop: SampleLoop) -> list[SampleLoop]:
    found: list[SampleLoop] = [
        inner for part in _body(program, loop) for inner in program.within(part, ast.For, ast.comprehension)
    ]
    owner = program.parent(loop)
    if isinstance(owner, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
        found += owner.generators[owner.generators.index(loop) + 1 :] if isinstance(loop, ast.comprehension) else []
    return found


# Two loops, over rows and over the pixels of a row


def _nested_over_pixels(program: Program, outer: SampleLoop, inner: SampleLoop) -> bool:
    return _by_index(program, outer, inner) or _by_row(program, outer, inner)


def _by_index(program: Program, outer: SampleLoop, inner: SampleLoop) -> bool:
    """`for y in range(h): for x in range(w): … image[y, x] …`"""
    ends = [_range_end(program, outer), _range_end(program, inner)]
    if not all(ends) or any(_is_small(program, end) for end in ends if end is not None):
        return False
    if not any(_is_side(program, end) for end in ends if end is not None):
        return False
    first, second = names_in(outer.target), names_in(inner.target)
    return any(_uses_both(program, part, first, second) for part in _body(program, inner))


def _range_end(program: Program, loop: SampleLoop) -> ast.expr | None:
    call = loop.iter
    if not isinstance(call, ast.Call):
        return None
    if program.method(call) in ("tqdm", "trange") and call.args and isinstance(call.args[0], ast.Call):
        call = call.args[0]
    if program.method(call) not in ("range", "xrange", "arange", "prange") or not call.args:
        return None
    return call.args[0] if len(call.args) == 1 else call.args[1]


def _is_small(program: Program, end: ast.expr) -> bool:
    value = program.value(end)
    return isinstance(value, int | float) and value < _SMALL


def _is_side(program: Program, end: ast.expr) -> bool:
    """A height or a width: by its number, by `.shape`, or by its name."""
    if isinstance(program.value(end), int | float):
        return True
    if any(part.attr in ("shape", "size", "height", "width") for part in program.within(end, ast.Attribute)):
        return True
    lengths = (call for call in program.within(end, ast.Call) if program.name(call) == "len" and call.args)
    if any(isinstance(call.args[0], ast.Subscript) for call in lengths):
        return True
    texts = [part.id for part in program.within(end, ast.Name)] + [part.attr for part in program.within(end, ast.Attribute)]
    return any(_SIDES & set(words(text)) for text in texts)


def _uses_both(program: Program, part: ast.AST, first: set[str], second: set[str]) -> bool:
    """Is one element taken by both counters: `a[y, x]`, `a[y][x]`, `getpixel((x, y))`?"""
    for node in program.within(part, ast.Subscript):
        keys = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        keys += [node.value.slice] if isinstance(node.value, ast.Subscript) else []
        plain = [names_in(key) for key in keys if not isinstance(key, ast.Slice)]
        if any(first & names for names in plain) and any(second & names for names in plain):
            return True
    pixels = [call for call in program.within(part, ast.Call) if program.method(call) in _ONE_PIXEL]
    return any(first & names_in(call) and second & names_in(call) for call in pixels)


def _by_row(program: Program, outer: SampleLoop, inner: SampleLoop) -> bool:
    """`for row in mask: for pixel in row: …`"""
    rows = names_in(outer.target)
    over = _unwrapped(program, inner.iter)
    end = _range_end(program, outer)
    if isinstance(over, ast.Subscript) and end is not None and _is_side(program, end) and not _is_small(program, end):
        return program.written(over.slice) in rows and _is_picture(program, over.value)
    return isinstance(over, ast.Name) and over.id in rows and _is_picture(program, _unwrapped(program, outer.iter))


def _unwrapped(program: Program, node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Call) and program.method(node) in ("enumerate", "tqdm", "list", "reversed") and node.args:
        node = node.args[0]
    return node


def _is_picture(program: Program, node: ast.expr) -> bool:
    """By what made it, or by its name."""
    if isinstance(node, ast.Call) and program.method(node) in ("tolist", "asarray", "array"):
        inner = node.args[0] if node.args else program.receiver(node)
        return inner is not None and _is_picture(program, inner)
    if not isinstance(node, ast.Name | ast.Attribute):
        return False
    name = program.written(node).rpartition(".")[2]
    return bool(_PICTURES & set(words(name))) or program.made_by(node) in DECODERS


# One loop, over all pixels


def _over_pixels(program: Program, loop: SampleLoop) -> bool:
    """`for p in image.reshape(-1, 3)`, `np.ndindex(image.shape[:2])`, `product(range(h), range(w))`, `range(h * w)`."""
    over = _unwrapped(program, loop.iter)
    end = _range_end(program, loop)
    if end is not None:
        return _is_area(program, end)
    if not isinstance(over, ast.Call):
        return isinstance(over, ast.Attribute) and over.attr == "flat" and _is_picture(program, over.value)
    method = program.method(over)
    if method not in _PIXELS:
        return False
    if method == "product":
        ends = [_range_end(program, ast.comprehension(target=loop.target, iter=item, ifs=[], is_async=0)) for item in over.args]
        sides = [end for end in ends if end is not None]
        large = len(sides) >= 2 and not any(_is_small(program, end) for end in sides)
        return large and any(_is_side(program, end) for end in sides)
    if method in ("ndindex", "ndenumerate", "nditer"):
        return _is_indexed(program, over)
    receiver = program.receiver(over)
    if method == "reshape":
        keys = [program.value(item) for item in over.args]
        return keys[:1] == [-1] and receiver is not None and _is_picture(program, receiver)
    return method != "tolist" and receiver is not None and _is_picture(program, receiver)


def _is_indexed(program: Program, call: ast.Call) -> bool:
    """`np.ndindex(h, w)`, `np.ndindex(*image.shape[:2])`, `np.ndenumerate(mask)`."""
    given = [item.value if isinstance(item, ast.Starred) else item for item in call.args]
    if program.method(call) != "ndindex":
        return any(_is_picture(program, item) for item in given)
    if any(_is_small(program, item) for item in given):
        return False
    shapes = [part.value for item in given for part in program.within(item, ast.Attribute) if part.attr == "shape"]
    return any(_is_picture(program, item) for item in shapes) or (
        len(given) >= 2 and all(_is_side(program, item) for item in given)
    )


def _is_area(program: Program, end: ast.expr) -> bool:
    """`h * w` of a picture."""
    if not isinstance(end, ast.BinOp) or not isinstance(end.op, ast.Mult):
        return False
    sides = (end.left, end.right)
    return all(_is_side(program, side) and not _is_small(program, side) for side in sides) and not isinstance(
        program.value(end), int
    )
