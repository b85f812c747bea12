"""A whole image decoded for a small part of it.

To cut one tile of 256 px out of a mosaic of 10,000 px, this code decodes a hundred million pixels and keeps 65,536 of them, again
for every tile. The same goes for `image[::4, ::4]` (15 of 16 pixels decoded for nothing).

**Write instead.** Read only what is needed:

    window = Window(column, row, TILE, TILE)
    tile = self.scene(path).read(window=window)                     # rasterio, a tiled file, the handle kept
    tf.image.decode_and_crop_jpeg(data, [top, left, TILE, TILE])    # a JPEG
    image.draft("RGB", (w // 4, h // 4))                            # Pillow: a JPEG at 1/2, 1/4 or 1/8
    np.load(path, mmap_mode="r")[r : r + TILE, c : c + TILE]        # an array

or cut all tiles once, in a preparation step: `unchoke tile` reads each scene once.

**When this is fine.** Random crops for augmentation and the centre crop behind a resize. A scene that is kept and cut many times.
All tiles cut from one decode: outside `__getitem__` it is a nit, for many may come of one decode there. Plain decode and resize
is `repeated-decode`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.facts.flow import follow
from unchoke.code.facts.origins import is_of_sample, is_random
from unchoke.code.facts.vocabulary import DECODERS, words
from unchoke.code.node_index import arguments
from unchoke.code.program import Program
from unchoke.linting.questions import is_done_anew, names_holding
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    group="input",
    stage="decode",
    title="whole image decoded for a small part of it",
    gain="4.6 s to 0.6 s where large JPEGs were decoded at full size for 64 px",
    claim="Planted chokes",
    command="unchoke tile",
    eased_by=("no-workers", "repeated-decode", "heavy-augmentation", "python-transform"),
)
_VOLUMES = frozenset(
    {"nibabel.load", "SimpleITK.ReadImage", "imageio.volread", "tifffile.imread", "skimage.io.imread", "itk.imread"}
)
# How many arguments say where; as many that follow say how large.
_CROPS = {"tf.image.crop_to_bounding_box": 2, "torchvision.transforms.functional.crop": 2, "tf.slice": 1,
          "torchvision.transforms.v2.functional.crop": 2}  # fmt: skip
_PARTS = frozenset(
    {"tile", "tiles", "window", "windows", "win", "patch", "patches", "chip", "chips", "cell", "grid", "block", "blocks"}
)


Part = tuple[ast.expr, str]
"""What is left of the decoded pixels, and how much of them that is."""


def check(program: Program) -> Iterator[Hit]:
    for call in program.nodes(ast.Call):
        part = next(_thrown_away(program, call), None) if _reads_whole(program, call) and is_done_anew(program, call) else None
        if part is not None:
            yield _hit(program, call, part)


def _hit(program: Program, call: ast.Call, part: Part) -> Hit:
    node, how = part
    name, kept = program.text(call.func), program.text(node)
    kept = kept if len(kept) <= 70 else f"{kept[:67]}…"
    return Hit(
        call,
        f"`{name}` decodes a whole image for every sample, and `{kept}` keeps {how} of it",
        evidence={"decode": name, "kept": kept},
        fix=_fix(program, call, how),
        kind=None if _is_of_one_sample(program, call) and not how.startswith(("every second", "every third")) else "nit",
    )


def _is_of_one_sample(program: Program, call: ast.Call) -> bool:
    """In `__getitem__`, which gives one sample; a generator may give all windows of one decode, one after the other."""
    function = program.enclosing_function(call)
    return function is not None and function.name == "__getitem__"


def _fix(program: Program, call: ast.Call, how: str) -> str:
    name = program.name(call)
    if "every" in how:
        return (
            "decode at the smaller size (Pillow `draft`, TensorFlow `ratio=`, OpenCV `IMREAD_REDUCED_…`), or store small copies"
        )
    if name.startswith("tf."):
        return "use `tf.image.decode_and_crop_jpeg` with the window, or cut the tiles once beforehand"
    if name == "numpy.load":
        return '`np.load(…, mmap_mode="r")` reads only the pages of the window'
    if program.method(call) in ("read", "ReadAsArray"):
        return "read the window alone: `read(window=Window(column, row, width, height))`, with the handle kept"
    return "cut the tiles once beforehand (`unchoke tile`), or keep the scene as a tiled GeoTIFF or `.npy` and read the window"


def _reads_whole(program: Program, call: ast.Call) -> bool:
    name = program.name(call)
    if name in DECODERS:
        return "crop" not in name
    if name == "numpy.load":
        return program.argument(call, "mmap_mode", 1) is None
    if program.method(call) == "read":
        part = program.argument(call, "window") or program.argument(call, "out_shape")
        return part is None and program.made_by(program.receiver(call)) == "rasterio.open"
    return program.method(call) == "ReadAsArray" and not call.args and not call.keywords


def _thrown_away(program: Program, call: ast.Call) -> Iterator[Part]:
    own = names_holding(program, call)
    for value in follow(program, call):
        parent = program.parent(value)
        if isinstance(parent, ast.Subscript) and parent.value is value and isinstance(parent.ctx, ast.Load):
            yield from _sliced(program, call, parent, own)
        elif isinstance(parent, ast.Call) and value in parent.args[:1]:
            yield from _cropped(program, parent, own)
        elif isinstance(parent, ast.Attribute) and parent.attr == "crop":
            above = program.parent(parent)
            if isinstance(above, ast.Call) and above.args and _is_box(program, above.args[0], own):
                yield above, "one window"


def _sliced(program: Program, call: ast.Call, node: ast.Subscript, own: frozenset[str]) -> Iterator[Part]:
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    steps = [program.value(part.step) for part in parts if isinstance(part, ast.Slice) and part.step is not None]
    coarse = [step for step in steps if isinstance(step, int) and step >= 2]
    if len(coarse) >= 2:
        which = {2: "second", 3: "third"}.get(coarse[0], f"{coarse[0]}th")
        yield node, f"every {which} pixel"
    windows = [part for part in parts if isinstance(part, ast.Slice) and _is_window(program, part.lower, part.upper, own)]
    if len(windows) >= 2:
        yield node, "one window"
    elif program.name(call) in _VOLUMES and len(parts) > 1:
        picked = [part for part in parts if not isinstance(part, ast.Constant | ast.Compare | ast.Slice)]
        if windows or any(_is_given(program, part, own) for part in picked):
            yield node, "one slice"


def _is_window(program: Program, lower: ast.expr | None, upper: ast.expr | None, own: frozenset[str]) -> bool:
    """From a place that comes with the sample, over a length that does not."""
    if lower is None or upper is None or not _is_given(program, lower, own):
        return False
    return _is_fixed_length(program, lower, upper) or _is_named_a_part(program, lower, upper)


def _is_given(program: Program, node: ast.expr, own: frozenset[str]) -> bool:
    """Coordinates that come from the sample's entry: not drawn at random, not worked out from the image."""
    return is_of_sample(program, node, without=own, random=False) and not is_random(program, node)


def _is_fixed_length(program: Program, lower: ast.expr, upper: ast.expr) -> bool:
    """`y : y + TILE`, `r * TILE : (r + 1) * TILE`, `y0 : y1` with `y1 = y0 + TILE`, `y : min(y + TILE, height)`."""
    ends = [upper, *(program.bound(upper) if isinstance(upper, ast.Name) else ())]
    sums = [part for end in ends for part in program.within(end, ast.BinOp)]
    added = (part for part in sums if isinstance(part.op, ast.Add) and program.text(part.left) == program.text(lower))
    next_one = any(isinstance(part.op, ast.Mult) and "+ 1" in program.text(part.left) for part in sums)
    return next_one or any(not is_of_sample(program, part.right) for part in added)


def _is_named_a_part(program: Program, *nodes: ast.expr) -> bool:
    """The names they come from say so: `tile`, `window`, `patch`."""
    behind = [value for node in nodes for name in program.within(node, ast.Name) for value in program.bound(name)]
    return any(_PARTS & set(words(program.text(node))) for node in (*nodes, *behind))


def _cropped(program: Program, call: ast.Call, own: frozenset[str]) -> Iterator[Part]:
    """A crop function given a place that comes with the sample and a size that does not."""
    given, num_places = arguments(call)[1:], _CROPS.get(program.name(call), 0)
    places, lengths = given[:num_places], given[num_places : 2 * num_places]
    if any(_is_given(program, item, own) for item in places) and not any(is_of_sample(program, item) for item in lengths):
        yield call, "one window"


def _is_box(program: Program, node: ast.expr, own: frozenset[str]) -> bool:
    """Pillow's box: (left, top, right, bottom)."""
    box = program.latest(node) if isinstance(node, ast.Name) else node
    if not isinstance(box, ast.Tuple) or len(box.elts) != 4:
        return _is_given(program, node, own) and _is_named_a_part(program, node)
    left, top, right, bottom = box.elts
    return _is_window(program, left, right, own) and _is_window(program, top, bottom, own)
