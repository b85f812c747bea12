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
in a function compiled by numba, and one small picture in a script that runs once. A mask compared with numbers, not colours, is
a nit; two or three are not reported.
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
    title="Python loop over pixels, or over the whole picture for each class",
    gain="5.6 s to 0.1 s for a script that did little else",
    claim="Planted chokes",
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
_PIXELS = frozenset({"flatten", "ravel", "getdata", "tolist", "reshape", "nditer", "ndindex", "ndenumerate", "product"})
_ONE_PIXEL = ("getpixel", "putpixel", "item", "itemset")
_MASKS = frozenset({"mask", "masks", "label", "seg", "segmentation", "annotation", "gt", "target"})
_PIECES = frozenset({"patch", "patches", "tile", "tiles", "crop", "crops", "window", "windows", "grid", "blocks"})
_OF_ARRAYS = frozenset({"shape", "ndim", "unsqueeze", "reshape", "view", "flatten", "ravel", "permute", "transpose", "resize"})
_COMPILED = frozenset({"njit", "jit", "guvectorize", "vectorize", "kernel", "stencil"})


def check(program: Program) -> Iterator[Hit]:
    taken: set[ast.AST] = set()
    for loop in program.nodes(ast.For, ast.comprehension):
        if loop in taken or _is_compiled(program, loop):
            continue
        of_sample = program.facts.in_per_sample(loop) is not None
        inner = _inner_loops(program, loop)
        if of_sample and _is_class_by_class(program, loop):
            yield _class_hit(program, loop)
            continue
        pixels = of_sample and _over_pixels(program, loop)
        if not pixels and not any(_nested_over_pixels(program, loop, other) for other in inner):
            continue
        if not of_sample and not _is_surely_picture(program, loop, inner):
            continue
        taken.update(inner)
        function = program.enclosing_function(loop)
        where = f"`{function.name}`" if function is not None else "this"
        over = program.text(loop.iter)
        yield Hit(
            program.parent(loop) or loop if isinstance(loop, ast.comprehension) else loop,
            f"{where} visits pixels one by one in Python (`for {program.text(loop.target)} in {over}`)"
            + (", for every sample" if of_sample else ""),
            evidence={"function": function.name if function is not None else "", "over": over},
            fix="write it over whole arrays (`np.where`, a lookup table, `cv2.filter2D`), or compile it with `numba.njit`",
        )

    yield from _gathered(program)


def _is_surely_picture(program: Program, loop: SampleLoop, inner: list[SampleLoop]) -> bool:
    """Outside per-sample code there are other tables: what is visited must be a picture by name or make, and not be drawn."""
    body = [*_body(program, loop), *(part for item in inner for part in _body(program, item))]
    if any(program.method(call) in ("text", "annotate", "subplot", "add_subplot", "imshow") for call in program.calls_in(body)):
        return False
    names = [names_in(loop.target), *(names_in(item.target) for item in inner)]
    taken = [node for part in body for node in program.within(part, ast.Subscript) if _is_one_pixel(node, names)]
    held: list[ast.expr] = [node.value.value if isinstance(node.value, ast.Subscript) else node.value for node in taken]
    called = [call.func for call in program.calls_in(body) if program.method(call) in _ONE_PIXEL]
    held += [func.value for func in called if isinstance(func, ast.Attribute)]
    return any(_is_picture(program, item) and not _PIECES & set(words(program.written(item))) for item in held)


def _is_one_pixel(node: ast.Subscript, names: list[set[str]]) -> bool:
    """`mask[y, x]`, `mask[y][x]`, `mask[y, x, 0]`; a slice among the keys takes more than that."""
    keys = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    keys += [node.value.slice] if isinstance(node.value, ast.Subscript) else []
    if any(isinstance(key, ast.Slice) for key in keys):
        return False
    return sum(any(own & names_in(key) for key in keys) for own in names) >= 2


def _gathered(program: Program) -> Iterator[Hit]:
    """`values.extend(image.flatten())`: an object of Python for every pixel."""
    for call in program.calls_to("extend"):
        given = call.args[0] if len(call.args) == 1 else None
        if not isinstance(given, ast.Call) or program.method(given) not in ("flatten", "ravel", "tolist", "getdata"):
            continue
        held = program.receiver(given)
        while isinstance(held, ast.Call):
            held = program.receiver(held)
        if held is not None and _is_picture(program, held) and program.loops_around(call):
            name = program.written(program.receiver(call)) or "a list"
            yield Hit(
                call,
                f"`{name}` gets one Python object for each pixel of each picture: some 30 bytes each, added one by one",
                evidence={"list": name},
                fix="add up sums and counts picture by picture (`image.sum()`, `np.bincount`), or keep the arrays and join them "
                "once with `np.concatenate`",
            )


# Once over the whole picture for each class


def _is_class_by_class(program: Program, loop: SampleLoop) -> bool:
    """`[mask == value for value in classes]`, `for colour in colours: np.all(np.equal(mask, colour), axis=-1)`."""
    classes = program.value(_unwrapped(program, loop.iter))
    if isinstance(classes, tuple) and len(classes) < _SEVERAL:
        return False
    return any(
        _compares_picture(program, part, names_in(loop.target)) for block in _body(program, loop) for part in ast.walk(block)
    )


def _compares_picture(program: Program, part: ast.AST, names: set[str]) -> bool:
    if isinstance(part, ast.Compare) and len(part.ops) == 1 and isinstance(part.ops[0], ast.Eq):
        sides = [part.left, part.comparators[0]]
    elif isinstance(part, ast.Call) and program.name(part) in ("numpy.equal", "torch.eq") and len(part.args) >= 2:
        sides = part.args[:2]
    else:
        return False
    of_round = [side for side in sides if names_in(side) & names]
    whole = [side for side in sides if isinstance(side, ast.Name) and side.id not in names and _MASKS & set(words(side.id))]
    return bool(of_round) and bool(whole)


def _class_hit(program: Program, loop: SampleLoop) -> Hit:
    over = program.text(loop.iter)
    body = _body(program, loop)
    colours = any(program.method(call) == "all" for call in program.calls_in(body))
    return Hit(
        program.parent(loop) or loop if isinstance(loop, ast.comprehension) else loop,
        f"the whole mask is compared with each of `{over}`, for every sample",
        evidence={"over": over},
        fix="turn masks into class numbers once, before training (uint8 files), and let the loss take those, or make them "
        "one-hot on the device",
        kind=None if colours else "nit",
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
    body = _body(program, inner)
    if not any(_uses_both(program, part, first, second) for part in body):
        return False
    taken = [node for part in body for node in program.within(part, ast.Subscript) if _is_one_pixel(node, [first, second])]
    return not any(_is_array(program, node, body) for node in taken)


def _is_array(program: Program, node: ast.expr, body: list[ast.AST]) -> bool:
    """Is what both counters pick more than a pixel: its shape asked for, cut, run through a network, or filled with a window?"""
    parent = program.parent(node)
    if isinstance(parent, ast.Attribute) and parent.attr in _OF_ARRAYS:
        return True
    if isinstance(parent, ast.Subscript) and parent.value is node and any(True for _ in program.within(parent.slice, ast.Slice)):
        return True
    if isinstance(parent, ast.Call) and node in parent.args:
        return program.facts.is_forward(parent)
    if not isinstance(parent, ast.Assign):
        return False
    if node in parent.targets:
        filled = parent.value
        return isinstance(filled, ast.Subscript) and any(True for _ in program.within(filled.slice, ast.Slice))
    names = [target.id for target in parent.targets if isinstance(target, ast.Name)]
    uses = [use for part in body for use in program.within(part, ast.Name) if use.id in names and isinstance(use.ctx, ast.Load)]
    return any(_is_array(program, use, []) for use in uses)


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
