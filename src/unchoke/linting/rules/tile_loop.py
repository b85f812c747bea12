"""Tiles, crops, frames or whole pictures sent through a network one at a time.

A device is built to work on many inputs at once. Called with one of them, a network leaves most of it idle and pays the cost of a
call (Python, launching each kernel, copying in and out) for each; Keras `predict` sets up a whole loop each time. A
training step with all tiles in one pass was 5.7 times as fast as with a pass for each tile (ViT-S/14, bfloat16, one H200), and
a planted loop went from 5.4 to 1.3 s on a CPU. Prediction alone is not measured yet.

**Write instead.** Gather tiles, then call once for a batch of them:

    for start in range(0, len(corners), 16):
        tiles = torch.stack([read_tile(scene, *corner) for corner in corners[start : start + 16]])
        scores = model(tiles.to(device))

Views of one picture (flips, crops) are a batch as well: `model(torch.stack(views))`. `unchoke segment predict` does this.

**When this is fine.** When each step needs what the one before left (a recurrent network, a tracker), for a live camera, for
tiles of different sizes, or for a handful that is only looked at. Hundreds of calls of `predict` (Keras, fastai), each with its
fixed cost, are a choke; what other loops gain hangs on sizes that the file does not tell, and they are nits.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator

from unchoke.code.facts.loops import unwrapped
from unchoke.code.facts.origins import root, sources
from unchoke.code.facts.sizing import is_resizing
from unchoke.code.facts.vocabulary import DECODERS, words
from unchoke.code.node_index import arguments, is_none, names_in
from unchoke.code.program import Program
from unchoke.linting.questions import Round, calls_run_by, num_items, rounds_of, whole_round, words_in
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    group="compute",
    stage="step",
    title="network called on one tile or picture at a time",
    gain="a training step 5.7 times as fast with all tiles in one pass (ViT-S/14, bfloat16, H200)",
    claim="Training through a network",
    in_training=True,
)
_TILES = frozenset(
    {"tile", "patch", "patches", "crop", "window", "view", "frame", "chip", "roi", "subimage", "cutout", "quadrant", "tta", "aug",
     "flips", "rotations", "subwindow", "subtile", "win", "box", "boxes"}
)  # fmt: skip
_BATCHES = frozenset({"loader", "dataloader", "dl", "batch", "batches", "batched", "chunk", "epoch", "folds"})
_LIVE = re.compile(r"camera|webcam|stream|capture|\bcap\b", re.IGNORECASE)
_CUTS = frozenset(
    {"rot90", "flip", "hflip", "crop", "read_region", "Window", "crop_to_bounding_box", "narrow", "from_bounds", "window"}
)
_STACKS = frozenset({"array", "asarray", "stack", "cat", "concat"})
_GATHERS = frozenset({"stack", "cat", "concat", "concatenate", "vstack", "repeat", "expand", "tile", "array_split"})
_FEW = 16
_MANY = 256
_DRAWS = frozenset({"imshow", "subplot", "subplots", "show", "figure", "display", "add_subplot"})
_SIZES = frozenset({"target_size", "image_size", "size", "dsize", "output_shape"})
_ARRAYS = frozenset({"x", "test", "val", "valid", "validation", "train", "ds", "dataset", "testset", "trainset", "valset"})
_CROPS = frozenset({"CenterCrop", "RandomCrop", "RandomResizedCrop", "Pad"})
_READS = frozenset({"read", "load", "open", "imread", "fetch"})
_FILES = frozenset({"path", "file", "filename", "names", "fnames", "urls", "ids"})


def check(program: Program) -> Iterator[Hit]:
    seen: set[ast.AST] = set()
    for call in program.nodes(ast.Call):
        if _is_learner(program, call):
            found = _looped_learner(program, call)
        else:
            found = _looped(program, call) if program.facts.is_forward(call) else None
        if found is not None and found not in seen:
            seen.add(found)
            yield _hit(program, call, found)


def _hit(program: Program, call: ast.Call, loop: Round) -> Hit:
    run, over = program.text(call.func), program.text(loop.iter)
    return Hit(
        call,
        f"`{run}` runs once for each round over `{over}`, on one input at a time",
        evidence={"call": run, "loop": over, "one": min(names_in(loop.target), default="tile")},
        fix=_fix(program, call, loop),
        kind=None if _is_many(program, call) else "nit",
        gain="" if program.facts.in_training(call) is not None else "commonly several times as many in the same time",
    )


def _is_many(program: Program, call: ast.Call) -> bool:
    """Hundreds of calls of Keras or fastai, each with its own fixed cost: as far as the file says, or loop within loop."""
    counts = [num_items(program, loop.iter) for loop in rounds_of(program, call)]
    known = math.prod(count for count in counts if count is not None)
    return program.method(call) == "predict" and (known >= _MANY or (len(counts) > 1 and None in counts))


def _fix(program: Program, call: ast.Call, loop: Round) -> str:
    """In the words of the framework; where an array is gone through, the whole of it can be given."""
    run = program.text(call.func)
    if _is_learner(program, call):
        learner = run.removesuffix(".predict")
        return f"give all files at once: `{learner}.get_preds(dl={learner}.dls.test_dl(files))`"
    in_keras = program.method(call) == "predict"
    parts = [part for part in _inputs(program, arguments(call)[:1]) if isinstance(part, ast.Subscript)]
    whole = [part.value for part in parts if isinstance(part.slice, ast.Name) and part.slice.id in names_in(loop.target)]
    if in_keras and whole and isinstance(whole[0], ast.Name):
        return f"call `{run}({whole[0].id}, batch_size=32)` once before the loop, and take each answer from what it gives"
    if in_keras:
        return f"gather the inputs of all rounds, `np.concatenate` them and call `{run}` once: it makes batches by itself"
    join = "tf.concat" if {"keras", "tensorflow"} & set(program.modules) else "torch.cat"
    return f"gather the inputs of 8 to 64 rounds, make one batch of them (`{join}`) and call `{run}` once for all"


def _is_learner(program: Program, call: ast.Call) -> bool:
    """`learn.predict(file)` of fastai takes one item, whatever it is."""
    made = program.made_by(program.receiver(call)) if program.method(call) == "predict" else ""
    return made.rpartition(".")[2] in ("vision_learner", "cnn_learner", "unet_learner", "load_learner")


def _looped_learner(program: Program, call: ast.Call) -> Round | None:
    used = names_in(*arguments(call))
    rounds = (loop for loop in rounds_of(program, call) if used & names_in(loop.target))
    many = (loop for loop in rounds if not _has_short_slice(program, loop.iter))
    return next((loop for loop in many if not _is_looked_at(program, loop)), None)


def _looped(program: Program, call: ast.Call) -> Round | None:
    """The loop over tiles round a forward call on one of them."""
    rounds = rounds_of(program, call)
    parts = _inputs(program, arguments(call)[:2])
    every = names_in(*(loop.target for loop in rounds))
    for loop in rounds:
        names = names_in(loop.target)
        if not names & _names(parts) or _is_left_alone(program, loop, call):
            continue
        calls = [part for part in parts if isinstance(part, ast.Call)]
        resized = any(is_resizing(program, item) or _resizes_all(program, item) for item in calls)
        if not resized and any(_is_of_own_size(part, every) for part in parts):
            return None
        if _is_carried(program, loop, parts) or any(_is_step_of_batch(part, names) for part in parts):
            return None
        unbound = any(program.method(item) == "unbind" for item in program.within(loop.iter, ast.Call))
        if (unbound or _is_single(program, call, parts, every)) and _is_over_tiles(program, loop, parts):
            return loop
        if _is_alone(program, parts) and _is_of_one_size(program, loop, parts) and not _is_looked_at(program, loop):
            return loop
    return None


def _inputs(program: Program, given: list[ast.expr]) -> list[ast.AST]:
    """What is handed over, with all that it was made of."""
    return [part for item in given for part in sources(program, item)]


def _names(parts: list[ast.AST]) -> set[str]:
    return {part.id for part in parts if isinstance(part, ast.Name)}


def _is_looked_at(program: Program, loop: Round) -> bool:
    """A few, or each round draws, itself or by a function of the file: for a person."""
    few = (num_items(program, loop.iter) or _FEW + 1) <= _FEW
    blocks = loop.body if isinstance(loop, ast.For) else []
    return few or any(program.method(call) in _DRAWS for call in calls_run_by(program, *blocks))


def _is_of_one_size(program: Program, loop: Round, parts: list[ast.AST]) -> bool:
    """Resized on the way, or picked from one array: `x[i]`, `for picture in x_test`."""
    whole = whole_round(program, loop)
    calls = [part for part in parts if isinstance(part, ast.Call) and program.index.holds(whole, part)]
    if any(is_resizing(program, call) or any(item.arg in _SIZES for item in call.keywords) for call in calls):
        return True
    if any(_resizes_all(program, call) for call in calls):
        return True
    if any("pad" in words(program.method(call)) for call in calls):  # to a multiple of something: they differ
        return False
    if any(program.name(call) in DECODERS or _READS & set(words(program.method(call))) for call in calls):
        return False
    keys = [part.slice for part in parts if isinstance(part, ast.Subscript) and not _FILES & words_in(part.value)]
    picked = names_in(loop.target) & names_in(*keys)
    return (bool(picked) and not isinstance(loop, ast.comprehension)) or _is_over_array(program, loop)


def _is_of_own_size(node: ast.AST, names: set[str]) -> bool:
    """`x[i, :length]`, `image[y1:y2, x1:x2]` with bounds that the loop hands out: each piece has its own size."""
    parts = (part for part in ast.walk(node.slice) if isinstance(part, ast.Slice)) if isinstance(node, ast.Subscript) else ()
    return any(isinstance(part.upper, ast.Name) and part.upper.id in names for part in parts)


def _is_over_array(program: Program, loop: Round) -> bool:
    """`for picture in x_test`, `for picture, label in test_set`: what is gone over is an array or a data set, by name or make."""
    over = unwrapped(program, loop.iter)
    said = words_in(over)
    made = program.assigned_class(over) in program.facts.datasets or program.made_by(over) == "numpy.load"
    return not said & _FILES and (bool(said & _ARRAYS) or made)


def _resizes_all(program: Program, call: ast.Call) -> bool:
    """`transform(picture)` with a crop or a resize to both sides in its pipeline."""
    steps = list(program.made_of(call.func, contents=True))
    sized = [step for step in steps if program.method(step) == "Resize"]
    both = any(len(step.args) > 1 or isinstance(program.value(program.argument(step, "size", 0)), tuple) for step in sized)
    return both or any(program.method(step) in _CROPS for step in steps)


def _is_left_alone(program: Program, loop: Round, call: ast.Call) -> bool:
    """Batches from a loader, a live camera, a handful, or rounds that need the one before: `h = cell(x[t], h)`."""
    loaders = {name for loader in program.facts.loaders for name in loader.targets}
    batches = names_in(loop.iter) & loaders or words_in(loop.iter) & _BATCHES
    recurrent = set(program.targets(call)) & names_in(*arguments(call)[1:])
    live = _LIVE.search(program.text(loop.iter))
    return bool(batches or recurrent or live) or _has_short_slice(program, loop.iter)


def _has_short_slice(program: Program, node: ast.expr) -> bool:
    """A fixed, short slice such as `tiles[:6]`, or as many as there are axes to draw on."""
    ends = (program.value(part.upper) for part in program.within(node, ast.Slice) if part.step is None)
    if any(isinstance(end, int) and 0 < end <= _FEW for end in ends):
        return True
    return any(re.fullmatch(r"ax(?:e?s|is)?|axarr", root(part)) for part in program.within(node, ast.Name, ast.Attribute))


def _is_carried(program: Program, loop: Round, parts: list[ast.AST]) -> bool:
    """Does the input hold what the round before left behind: a name read before the loop gives it anew, other than a counter?"""
    stores = [item for item in program.within(loop, ast.Name) if isinstance(item.ctx, ast.Store)]
    for part in parts:
        given = [item for item in stores if isinstance(part, ast.Name) and item.id == part.id]
        if not given or not program.index.holds(loop, part) or any(program.is_before(item, part) for item in given):
            continue
        whole = [program.statement(item) for item in given]
        if any(isinstance(item, ast.Assign) and not isinstance(item.value, ast.BinOp | ast.Constant) for item in whole):
            return True
    return False


def _is_over_tiles(program: Program, loop: Round, parts: list[ast.AST]) -> bool:
    """By the names in its head, or because its variable picks one of an array of tiles or cuts a window out."""
    names = names_in(loop.target)
    named = _TILES & (words_in(loop.target) | words_in(loop.iter))
    return bool(named) or any(_is_one_of(part, names) or _cuts(program, part, names) for part in parts)


def _is_one_of(node: ast.AST, names: set[str]) -> bool:
    """`tiles[i]`, `batch_tiles[:, i]`: one of an array that is called tiles."""
    if not isinstance(node, ast.Subscript) or not _TILES & words_in(node.value):
        return False
    picked = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return any(isinstance(part, ast.Name) and part.id in names for part in picked)


def _cuts(program: Program, node: ast.AST, names: set[str]) -> bool:
    """`image[y:y + s, x:x + s]`, `Window(x, y, s, s)`, `image.crop(box)` with the loop's variable in it."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Tuple) and bool(_cut_slices(program, node, names))
    return isinstance(node, ast.Call) and program.method(node) in _CUTS and bool(names & names_in(*arguments(node)))


def _cut_slices(program: Program, node: ast.Subscript, names: set[str]) -> list[ast.Slice]:
    """The slices of this subscript whose bounds hang on the loops' variables."""
    return [part for part in program.within(node.slice, ast.Slice) if names & names_in(part)]


def _is_single(program: Program, call: ast.Call, parts: list[ast.AST], names: set[str]) -> bool:
    """Is the input one tile: given a batch of one, cut out at one place, or the same tile of every picture (`tiles[:, i]`)?"""
    cut = any(isinstance(part, ast.Subscript) and len(_cut_slices(program, part, names)) >= 2 for part in parts)
    first = call.args[0] if call.args else None
    picked = isinstance(first, ast.Subscript) and isinstance(first.slice, ast.Tuple) and _is_one_of(first, names)
    by_name = program.made_by(call.func).endswith("YOLO") and program.written(first) in names
    return picked or by_name or _is_alone(program, parts, is_cut=cut)


def _is_step_of_batch(node: ast.AST, names: set[str]) -> bool:
    """`states[:, t]`: a step of the whole batch, where the array's name does not say that it holds tiles."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Tuple) or _is_one_of(node, names):
        return False
    first, *others = node.slice.elts
    whole = isinstance(first, ast.Slice) and first.lower is None and first.upper is None
    return whole and any(isinstance(key, ast.Name) and key.id in names for key in others)


def _is_alone(program: Program, parts: list[ast.AST], *, is_cut: bool = False) -> bool:
    """One picture, by an axis of length one or because it is cut out so, and not put together with others after all."""
    return (is_cut or any(_adds_axis(program, part) for part in parts)) and not any(_gathers(program, part) for part in parts)


def _adds_axis(program: Program, node: ast.AST) -> bool:
    """Is this where one input is made a batch of one?"""
    if isinstance(node, ast.Subscript):  # x[None], x[np.newaxis, ...], tiles[i : i + 1]
        first = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
        lower = first.lower if isinstance(first, ast.Slice) else None
        one = lower is not None and program.text(first).endswith(f":{program.text(lower)} + 1")
        return one or is_none(first) or program.name(first).endswith("newaxis")
    if isinstance(node, ast.List):  # np.array([x]), model([x])
        parent = program.parent(node)
        put = isinstance(parent, ast.Call) and (program.method(parent) in _STACKS or program.facts.is_forward(parent))
        return len(node.elts) == 1 and put and not isinstance(node.elts[0], ast.Starred)
    return isinstance(node, ast.Call) and _is_batch_of_one(program, node)


def _is_batch_of_one(program: Program, call: ast.Call) -> bool:
    """`x.unsqueeze(0)`, `np.expand_dims(x, 0)`, `x.reshape(1, …)`, a processor's `images=x`."""
    method = program.method(call)
    if method in ("unsqueeze", "unsqueeze_", "expand_dims"):
        axis = program.argument(call, "dim", 0 if program.name(call).startswith("?.") else 1) or program.argument(call, "axis")
        return bool(program.value(axis) == 0)
    if method in ("reshape", "view") and call.args:
        given = call.args[0].left if isinstance(call.args[0], ast.BinOp) else call.args[0]  # (1,) + x.shape
        return bool(program.value(given.elts[0] if isinstance(given, ast.Tuple) and given.elts else given) == 1)
    return program.keyword(call, "images") is not None and program.keyword(call, "return_tensors") is not None


def _gathers(program: Program, node: ast.AST) -> bool:
    """Several are put together after all: not channels, along another axis, and not a single one."""
    if not isinstance(node, ast.Call) or program.method(node) not in _GATHERS:
        return False
    joins = program.method(node) in ("stack", "cat", "concat", "concatenate")
    axis = (program.argument(node, "axis", 1) or program.argument(node, "dim")) if joins else None
    single = any(isinstance(item, ast.List | ast.Tuple) and len(item.elts) == 1 for item in node.args[:1])
    return not single and (axis is None or program.value(axis) == 0)
