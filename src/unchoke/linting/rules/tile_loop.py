"""Tiles, crops, frames or whole pictures sent through a network one at a time.

A device is built to work on many inputs at once. Called with one of them, a network leaves most of it idle and pays the cost of a
call (Python, launching each kernel, copying in and out) for each; Keras `predict` sets up a whole loop each time. A
training step with all tiles in one pass was 5.7 times as fast as with a pass for each tile (ViT-S/14, bfloat16, one H200), and
a planted loop went from 5.4 to 1.3 s on a CPU. Prediction alone is not measured yet.

**Write instead.** Gather tiles, then call once for a batch of them:

    for start in range(0, len(corners), 16):
        tiles = torch.stack([read_tile(scene, *corner) for corner in corners[start : start + 16]])
        scores = model(tiles.to(device))

Views of one picture (flips, crops) are a batch as well: `model(torch.stack(views))`. `unchoke segment predict` does this for
whole scenes.

**When this is fine.** When each step needs what the one before left (a recurrent network, a tracker), for a live camera,
for tiles of different sizes, or for a handful that is only looked at.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from unchoke.code.facts.loops import is_range, unwrapped
from unchoke.code.facts.origins import comprehensions_round, loop_names, root, sources
from unchoke.code.facts.sizing import is_resizing
from unchoke.code.facts.vocabulary import DECODERS, words
from unchoke.code.node_index import FunctionNode, LoopNode, arguments, is_none, parameters
from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    code="tile-loop",
    group="compute",
    stage="step",
    title="network called on one tile or picture at a time",
    gain="a training step 5.7 times as fast with all tiles in one pass (ViT-S/14, bfloat16, H200)",
    claim="Training through a network",
)
Round = LoopNode | ast.comprehension
_TILES = frozenset(
    {"tile", "patch", "crop", "window", "view", "frame", "chip", "roi", "subimage", "cutout", "quadrant", "tta", "aug", "augs",
     "flips", "rotations", "subwindow", "subtile", "tiles", "patches", "crops", "windows", "views", "frames", "chips", "rois",
     "subimages", "quadrants", "win", "wins", "box", "boxes"}
)  # fmt: skip
_CUT = frozenset({"tile", "patch", "chip", "frame", "subimage", "roi"})
_LIVE = re.compile(r"camera|webcam|stream|capture|\bcap\b", re.IGNORECASE)
_CUTS = frozenset(
    {"rot90", "flip", "hflip", "crop", "read_region", "Window", "crop_to_bounding_box", "narrow", "from_bounds", "window"}
)
_MOVES = frozenset({"to", "cuda", "float", "contiguous", "half"})
_STACKS = frozenset({"array", "asarray", "stack", "cat", "concat"})
_GATHERS = frozenset({"stack", "cat", "concat", "concatenate", "vstack", "repeat", "expand", "tile", "array_split"})
_FEW = 16
_DRAWS = frozenset({"imshow", "subplot", "subplots", "show", "figure", "display", "add_subplot"})
_SIZES = frozenset({"target_size", "image_size", "size", "dsize", "output_shape"})
_ARRAYS = frozenset({"x", "test", "val", "valid", "validation", "train", "ds", "dataset", "testset", "trainset", "valset"})
_CROPS = frozenset({"CenterCrop", "RandomCrop", "RandomResizedCrop", "Pad"})
_READS = frozenset({"read", "load", "open", "imread", "fetch"})
_FILES = frozenset({"path", "paths", "file", "files", "filename", "filenames", "names", "fnames", "urls", "ids"})


def check(program: Program) -> Iterator[Hit]:
    seen: set[ast.AST] = set()
    for call in program.nodes(ast.Call):
        if _is_learner(program, call):
            found = _looped_learner(program, call)
        else:
            found = _looped(program, call) if program.facts.is_forward(call) else _looped_helper(program, call)
        if found is not None and found not in seen:
            seen.add(found)
            yield _hit(program, call, found)


def _hit(program: Program, call: ast.Call, loop: Round) -> Hit:
    run = program.text(call.func)
    over = program.text(loop.iter) if not isinstance(loop, ast.While) else ""
    name = next(iter(sorted(loop_names(loop))), "tile")
    return Hit(
        call if program.facts.is_forward(call) or not isinstance(loop, ast.For) else loop,
        f"`{run}` runs once for each round over `{over}`, on one input at a time",
        evidence={"call": run, "loop": over, "one": name},
        fix=_fix(program, call, loop),
        gain="" if program.facts.in_training(call) is not None else "commonly several times as many in the same time",
    )


def _fix(program: Program, call: ast.Call, loop: Round) -> str:
    """In the words of the framework; where an array is gone through, the whole of it can be given."""
    run = program.text(call.func)
    if _is_learner(program, call):
        receiver = program.receiver(call)
        learner = program.text(receiver) if receiver is not None else "learn"
        return f"give all files at once: `{learner}.get_preds(dl={learner}.dls.test_dl(files))`"
    in_keras = program.method(call) == "predict"
    parts = [part for item in arguments(call)[:1] for part in sources(program, item) if isinstance(part, ast.Subscript)]
    whole = [part.value for part in parts if isinstance(part.slice, ast.Name) and part.slice.id in loop_names(loop)]
    if in_keras and whole and isinstance(whole[0], ast.Name):
        return f"call `{run}({whole[0].id}, batch_size=32)` once before the loop, and take each answer from what it gives"
    stack = "np.stack" if in_keras else "torch.stack"
    return f"gather the inputs of 8 to 64 rounds, `{stack}` them and call `{run}` once for all of them"


def _is_learner(program: Program, call: ast.Call) -> bool:
    """`learn.predict(file)` of fastai takes one item, whatever it is."""
    made = program.made_by(program.receiver(call)) if program.method(call) == "predict" else ""
    return made.rpartition(".")[2] in ("vision_learner", "cnn_learner", "unet_learner", "load_learner")


def _looped_learner(program: Program, call: ast.Call) -> Round | None:
    used = {part.id for item in arguments(call) for part in program.within(item, ast.Name)}
    for loop in _rounds(program, call):
        few = isinstance(loop, ast.While) or _num_rounds(program, loop.iter) is not None or _is_few(program, loop.iter)
        if used & loop_names(loop) and not few and not _is_looked_at(program, loop):
            return loop
    return None


def _looped(program: Program, call: ast.Call) -> Round | None:
    """The loop over tiles round a forward call on one of them."""
    given = arguments(call)
    parts = [part for item in given[:2] for part in sources(program, item)]
    for loop in _rounds(program, call):
        names = loop_names(loop)
        if not names & {part.id for part in parts if isinstance(part, ast.Name)} or _is_left_alone(program, loop, call):
            continue
        if _is_carried(program, loop, parts) or any(_is_step_of_batch(part, names) for part in parts):
            return None
        if _is_over_tiles(program, loop, parts) and (
            _is_unbound(program, loop, call)
            or _is_single(program, call, parts, {name for loop in _rounds(program, call) for name in loop_names(loop)})
        ):
            return loop
        if _is_one_picture(program, loop, parts):
            return loop
        if not _is_inside_a_picture(loop):
            return None
    return None


def _is_one_picture(program: Program, loop: Round, parts: list[ast.AST]) -> bool:
    """Whatever it is of: an axis of length one in front, many rounds, and all of one size, so that they could be stacked."""
    if isinstance(loop, ast.While) or isinstance(_num_rounds(program, loop.iter), int) or _is_looked_at(program, loop):
        return False
    made_one = any(_adds_axis(program, part) for part in parts) and not any(_gathers(program, part) for part in parts)
    return made_one and _is_of_one_size(program, loop, parts)


def _is_looked_at(program: Program, loop: Round) -> bool:
    """Each round draws, itself or by a function of the file: a few, for a person."""
    blocks: list[ast.AST] = list(loop.body) if isinstance(loop, ast.For) else []
    functions = [function for block in blocks for function in program.reach(block)]
    return any(program.method(call) in _DRAWS for call in program.calls_in([*blocks, *functions]))


def _is_of_one_size(program: Program, loop: Round, parts: list[ast.AST]) -> bool:
    """Resized on the way, or picked from one array: `x[i]`, `for picture in x_test`."""
    round_ = program.parent(loop) if isinstance(loop, ast.comprehension) else loop
    calls = [part for part in parts if isinstance(part, ast.Call) and round_ is not None and program.index.holds(round_, part)]
    if any(is_resizing(program, call) or any(item.arg in _SIZES for item in call.keywords) for call in calls):
        return True
    if any(_resizes_all(program, call) for call in calls):
        return True
    if any(program.name(call) in DECODERS or _READS & set(words(program.method(call))) for call in calls):
        return False
    names = loop_names(loop)
    keys = [part.slice for part in parts if isinstance(part, ast.Subscript) and not _FILES & set(_words(part.value))]
    picked = any(isinstance(part, ast.Name) and part.id in names for key in keys for part in program.within(key, ast.Name))
    return (picked and not isinstance(loop, ast.comprehension)) or _is_over_array(program, loop, parts)


def _is_over_array(program: Program, loop: Round, parts: list[ast.AST]) -> bool:
    """`for picture in x_test`, `for picture, label in test_set`: what is gone over is an array or a data set, by name or make."""
    over = unwrapped(program, loop.iter) if not isinstance(loop, ast.While) else None
    if not isinstance(over, ast.Name | ast.Attribute) or not any(root(part) in loop_names(loop) for part in parts):
        return False
    said = set(words(program.written(over).rpartition(".")[2]))
    if said & _FILES:
        return False
    return bool(said & _ARRAYS) or program.assigned_class(over) in program.facts.datasets or program.made_by(over) == "numpy.load"


def _resizes_all(program: Program, call: ast.Call) -> bool:
    """`transform(picture)` with a crop or a resize to both sides in its pipeline."""
    if not isinstance(call.func, ast.Name | ast.Attribute) or program.function_of(call) is not None:
        return False
    steps = list(program.made_of(call.func, contents=True)) if program.written(call.func) else []
    kinds = {program.method(step) for step in steps}
    return bool(kinds & _CROPS) or any(program.method(step) == "Resize" and _has_both_sides(program, step) for step in steps)


def _has_both_sides(program: Program, step: ast.Call) -> bool:
    size = program.value(program.argument(step, "size", 0))
    return isinstance(size, tuple) or len(step.args) > 1 or program.argument(step, "width") is not None


def _num_rounds(program: Program, node: ast.expr) -> Any:
    """How often `range(n)` goes round where that is few; `random.sample(paths, n)` as well."""
    inner = unwrapped(program, node)
    if isinstance(inner, ast.Name):
        inner = program.latest(inner) or inner
    count: Any = None
    if isinstance(inner, ast.List | ast.Tuple):
        count = len(inner.elts)
    elif isinstance(inner, ast.Call) and inner.args:
        drawn = program.method(inner) in ("sample", "choices", "choice", "take")
        counted = is_range(program, inner) and len(inner.args) == 1
        size = program.argument(inner, "size") or program.argument(inner, "k")
        count = program.value(size or inner.args[-1]) if drawn or counted else None
    return count if isinstance(count, int) and count <= _FEW else None


def _rounds(program: Program, node: ast.AST) -> list[Round]:
    return [
        *comprehensions_round(program, node),
        *(loop for loop in program.loops_around(node) if not isinstance(loop, ast.While)),
    ]


def _is_inside_a_picture(loop: Round) -> bool:
    """A loop over numbers (rows, columns) may be the inner one of two over a grid."""
    return not isinstance(loop, ast.While) and isinstance(loop.iter, ast.Call)


def _is_left_alone(program: Program, loop: Round, call: ast.Call) -> bool:
    """Batches from a loader, a live camera, a handful, or rounds that need the one before."""
    if isinstance(loop, ast.While) or _LIVE.search(program.text(loop.iter)) or _is_few(program, loop.iter):
        return True
    loaders = {name for loader in program.facts.loaders for name in loader.targets}
    if any(item.id in loaders for item in program.within(loop.iter, ast.Name)):
        return True
    plain = {
        word
        for part in program.within(loop.iter, ast.Name, ast.Attribute)
        for word in words(program.written(part).rpartition(".")[2])
    }
    if plain & {"loader", "dataloader", "dl", "batches", "batched", "chunks", "chunk", "batch", "epochs", "epoch", "folds"}:
        return True
    return _is_recurrent(program, call)


def _is_few(program: Program, node: ast.expr) -> bool:
    """A fixed, short slice such as `tiles[:6]`, or as many as there are axes to draw on."""
    for part in program.within(node, ast.Subscript):
        upper = program.value(part.slice.upper) if isinstance(part.slice, ast.Slice) else None
        if isinstance(part.slice, ast.Slice) and part.slice.step is None and isinstance(upper, int) and 0 < upper <= _FEW:
            return True
    return any(re.fullmatch(r"ax(?:e?s|is)?|axarr", root(part)) for part in program.within(node, ast.Name, ast.Attribute))


def _is_recurrent(program: Program, call: ast.Call) -> bool:
    """`h = cell(x[t], h)`: the result goes into the next round."""
    statement = program.statement(call)
    targets = set(program.targets(call)) if isinstance(statement, ast.Assign) else set()
    used = {part.id for item in arguments(call) for part in program.within(item, ast.Name)}
    return bool(targets & used - _names_of_input(program, call))


def _is_carried(program: Program, loop: Round, parts: list[ast.AST]) -> bool:
    """Does the input hold what the round before left behind: a name read before the loop gives it anew, other than a counter?"""
    if not isinstance(loop, ast.For):
        return False
    number = program.index.number
    for part in parts:
        if not isinstance(part, ast.Name) or not isinstance(part.ctx, ast.Load) or not program.index.holds(loop, part):
            continue
        given = [item for item in program.within(loop, ast.Name) if item.id == part.id and isinstance(item.ctx, ast.Store)]
        if not given or part.id in loop_names(loop) or min(number[item] for item in given) < number[part]:
            continue
        whole = [program.statement(item) for item in given]
        if any(isinstance(item, ast.Assign) and not isinstance(item.value, ast.BinOp | ast.Constant) for item in whole):
            return True
    return False


def _names_of_input(program: Program, call: ast.Call) -> set[str]:
    """`x = net(x)` with `x` cut out anew in each round is not recurrent."""
    first = call.args[0] if call.args else None
    parts = program.within(first, ast.Name) if first is not None else iter(())
    loops = program.loops_around(call)
    fresh = set()
    for part in parts:
        given = program.given_before(part)
        if loops and given is not None and program.index.holds(loops[0], given.value):
            fresh.add(part.id)
    return fresh


def _is_over_tiles(program: Program, loop: Round, parts: list[ast.AST]) -> bool:
    """By the names in its head, by names it gives to what it cuts, or because its variable cuts a window out."""
    if isinstance(loop, ast.While):
        return False
    head = [*ast.walk(loop.target), *program.within(loop.iter, ast.Name, ast.Attribute)]
    if any(_TILES & set(_words(part)) for part in head):
        return True
    names = loop_names(loop)
    if any(_is_cut_out(program, part) or _is_one_of(part, names) for part in parts):
        return True
    return any(_cuts(program, part, names) for part in parts)


def _words(node: ast.AST) -> list[str]:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return words(re.sub(r"data_?frame", "", name, flags=re.IGNORECASE))


def _is_cut_out(program: Program, node: ast.AST) -> bool:
    """A variable (not a function) that is called a tile."""
    parent = program.parent(node)
    if not isinstance(node, ast.Name) or (isinstance(parent, ast.Call) and parent.func is node):
        return False
    return bool(_words(node)) and _words(node)[-1] in _CUT


def _is_one_of(node: ast.AST, names: set[str]) -> bool:
    """`tiles[i]`, `batch_tiles[:, i]`: one of an array that is called tiles."""
    if not isinstance(node, ast.Subscript) or not _TILES & set(_words(node.value)):
        return False
    picked = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return any(isinstance(part, ast.Name) and part.id in names for part in picked)


def _cuts(program: Program, node: ast.AST, names: set[str]) -> bool:
    """`image[y:y + s, x:x + s]`, `Window(x, y, s, s)`, `image.crop(box)` with the loop's variable in it."""
    if isinstance(node, ast.Subscript):
        return bool(_cut_slices(program, node, names)) and isinstance(node.slice, ast.Tuple)
    if not isinstance(node, ast.Call) or program.method(node) not in _CUTS:
        return False
    given = arguments(node)
    return any(part.id in names for item in given for part in program.within(item, ast.Name))


def _cut_slices(program: Program, node: ast.Subscript, names: set[str]) -> list[ast.Slice]:
    """The slices of this subscript whose bounds hang on the loops' variables."""
    return [
        part for part in program.within(node.slice, ast.Slice) if any(name.id in names for name in program.within(part, ast.Name))
    ]


def _is_single(program: Program, call: ast.Call, parts: list[ast.AST], names: set[str]) -> bool:
    """Is the input one tile: given a batch of one, picked from an axis of tiles, or cut out at one place?"""
    if any(_adds_axis(program, part) for part in parts):
        return not any(_gathers(program, part) for part in parts)
    if any(isinstance(part, ast.Subscript) and len(_cut_slices(program, part, names)) >= 2 for part in parts):
        return not any(_gathers(program, part) for part in parts)
    if call.args and _is_picked(call.args[0], names):
        return True
    return program.made_by(call.func).endswith("YOLO") and bool(call.args) and program.written(call.args[0]) in names


def _is_step_of_batch(node: ast.AST, names: set[str]) -> bool:
    """`states[:, t]`: a step of the whole batch, where the array's name does not say that it holds tiles."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Tuple) or _is_one_of(node, names):
        return False
    first, *others = node.slice.elts
    whole = isinstance(first, ast.Slice) and first.lower is None and first.upper is None
    return whole and any(isinstance(key, ast.Name) and key.id in names for key in others)


def _is_unbound(program: Program, loop: Round, call: ast.Call) -> bool:
    """`for tile in tiles.unbind(1): net(tile)`."""
    calls = program.within(loop.iter, ast.Call) if not isinstance(loop, ast.While) else iter(())
    unbound = any(program.method(item) == "unbind" for item in calls)
    return unbound and bool(call.args) and root(call.args[0]) in loop_names(loop)


def _adds_axis(program: Program, node: ast.AST) -> bool:
    """Is this where one input is made a batch of one?"""
    if isinstance(node, ast.Subscript):  # x[None], x[np.newaxis, ...]
        first = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
        added = is_none(first) or program.name(first).endswith("newaxis")
        return added or _is_slice_of_one(program, first)
    if isinstance(node, ast.List):  # np.array([x]), model([x])
        parent = program.parent(node)
        put = isinstance(parent, ast.Call) and (program.method(parent) in _STACKS or program.facts.is_forward(parent))
        return len(node.elts) == 1 and put and not isinstance(node.elts[0], ast.Starred)
    return isinstance(node, ast.Call) and _is_batch_of_one(program, node)


def _is_slice_of_one(program: Program, node: ast.expr) -> bool:
    """`tiles[i : i + 1]`."""
    if not isinstance(node, ast.Slice) or node.lower is None or not isinstance(node.upper, ast.BinOp):
        return False
    return program.text(node.upper.left) == program.text(node.lower) and program.value(node.upper.right) == 1


def _is_batch_of_one(program: Program, call: ast.Call) -> bool:
    """`x.unsqueeze(0)`, `np.expand_dims(x, 0)`, `x.reshape(1, …)`, a processor's `images=x`."""
    method = program.method(call)
    if method in ("unsqueeze", "unsqueeze_"):
        position = 0 if program.name(call).startswith("?.") else 1
        return bool(program.value(program.argument(call, "dim", position)) == 0)
    if method == "expand_dims":
        return bool(program.value(program.argument(call, "axis", 1)) == 0)
    if method in ("reshape", "view"):
        given = call.args[0] if call.args else None
        given = given.left if isinstance(given, ast.BinOp) else given  # (1,) + x.shape
        first = given.elts[0] if isinstance(given, ast.Tuple) and given.elts else given
        return bool(program.value(first) == 1)
    return program.keyword(call, "images") is not None and program.keyword(call, "return_tensors") is not None


def _gathers(program: Program, node: ast.AST) -> bool:
    """Several are put together after all."""
    if not isinstance(node, ast.Call) or program.method(node) not in _GATHERS:
        return False
    joins = program.method(node) in ("stack", "cat", "concat", "concatenate")
    axis = (program.argument(node, "axis", 1) or program.argument(node, "dim")) if joins else None
    if axis is not None and program.value(axis) != 0:
        return False  # channels, not pictures
    given = node.args[0] if node.args else None
    return not (isinstance(given, ast.List | ast.Tuple) and len(given.elts) == 1)


def _is_picked(node: ast.expr, names: set[str]) -> bool:
    """`tiles[:, i]`: the same tile of every picture, where the array's name says that it holds tiles."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _MOVES:
        node = node.func.value
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Tuple):
        return False
    return isinstance(node.slice.elts[0], ast.Slice) and _is_one_of(node, names)


def _looped_helper(program: Program, call: ast.Call) -> Round | None:
    """A loop over tiles that hands each to a function of this file, which runs the network on it alone."""
    rounds = _rounds(program, call)
    function = program.function_of(call) if rounds else None
    if function is None or function.name in ("forward", "__init__", "__call__"):
        return None
    given = arguments(call)
    parts = [part for item in given for part in sources(program, item)]
    loop = rounds[0]
    handed = loop_names(loop) & {part.id for part in parts if isinstance(part, ast.Name)}
    if not handed or _is_left_alone(program, loop, call) or not _is_over_tiles(program, loop, parts):
        return None
    return loop if _runs_alone(program, function) else None


def _runs_alone(program: Program, function: FunctionNode) -> bool:
    """A forward call in this function, in no loop of its own, on its parameter as a batch of one."""
    names = set(parameters(function))
    for call in program.within(function, ast.Call):
        if not program.facts.is_forward(call) or _rounds(program, call) or program.enclosing_function(call) is not function:
            continue
        parts = [part for item in call.args[:2] for part in sources(program, item)]
        used = {part.id for part in parts if isinstance(part, ast.Name)}
        alone = any(_adds_axis(program, part) for part in parts) and not any(_gathers(program, part) for part in parts)
        if names & used and alone:
            return True
    return False
