"""The same images decoded and resized again in every epoch.

Decoding a photo and resizing it gives the same pixels in every epoch. With 30 epochs the work is done 30 times, and on a
machine with few cores the network waits for the decoder. `ImageFolder`, `flow_from_directory`, `image_dataset_from_directory`
and fastai's loaders do so too, unless something behind them keeps the pixels; samples that are windows over a sequence of
files decode each file once for every window.

**Write instead.** Decode and resize once, keep the small pixels, and augment those:

    small = np.load("images_224.npy", mmap_mode="r")           # made once: n x 224 x 224 x 3, uint8
    return self.augment(Image.fromarray(small[index])), label

In tf.data put `.cache(path)` between the `map` that decodes and the `map` that augments. `unchoke fit` and `unchoke extract`
decode each photo once and keep what the frozen part of the network made of it.

**When this is fine.** One pass only (prediction, feature extraction). Files that already are small copies. Crops sized at
random out of the full image (`RandomResizedCrop`), which need it; there a copy somewhat larger than the crop still helps. A
data set whose small copies would not fit on the disk. Folders read for fewer than five epochs are not reported, for fewer
than 20 or an unknown number they are nits; so is a `map` of tf.data with `num_parallel_calls`, which decodes beside the step, for
fewer than 50 epochs (or any number with `EarlyStopping`) and a plain resize.

Holds on every device and for every version.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from unchoke.code.constant_values import UNKNOWN
from unchoke.code.facts.keeping import is_kept, is_save
from unchoke.code.facts.loaders import BatchSource
from unchoke.code.facts.origins import runs_for_each_sample
from unchoke.code.facts.per_sample import SampleFunction
from unchoke.code.facts.sizing import PIPELINE_RESIZERS, RANDOM_SIZERS, Resize, functions_run, is_resizing, sizing
from unchoke.code.facts.training_feeds import (
    DIRECTORY_SETS,
    FLOWS,
    few,
    item_functions,
    keras_feeds,
    num_epochs,
)
from unchoke.code.facts.vocabulary import DECODING_DATASETS, words
from unchoke.code.node_index import FunctionNode, parameters
from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    code="repeated-decode",
    group="input",
    stage="decode",
    title="images decoded and resized again in every epoch",
    gain="4.1 s to 1.0 s over 24 epochs of PNG files, decoded once and kept",
    claim="Planted chokes",
    command="unchoke extract",
)
_MIN_EPOCHS = 5
_MANY_EPOCHS = 20
_SURELY_MANY = 50
_DEAR_METHODS = ("area", "cubic", "lanczos", "gaussian")
_FASTAI_SETS = frozenset({"ImageDataBunch", "ImageDataLoaders", "SegmentationDataLoaders", "ImageClassifierData"})
FOLDER_READERS = DIRECTORY_SETS | FLOWS - {"flow"}
_ONE_PASS = frozenset({"test", "infer", "inference", "pred", "predict", "prediction", "submission", "sub", "unseen", "query"})


def check(program: Program) -> Iterator[Hit]:
    if _is_one_pass(program) or _has_small_copies(program):
        return
    yield from _from_folders(program)
    yield from _overlapping(program)
    said: set[ast.Call] = set()
    for record in program.facts.per_sample:
        decode = _decode(program, record)
        if decode is None or decode in said or _runs_once(program, record):
            continue
        found = sizing(program, record)
        own = [item for item in found.resizes if item.pipeline is None]
        resizes = own if found.by_random_crop else found.resizes
        if resizes:
            said.add(decode)
            yield _hit(program, decode, resizes[0], record)
    if not said:
        yield from _not_resized(program)


def _asked_at(program: Program, decode: ast.Call, record: SampleFunction) -> ast.Call:
    """The decode; where a helper in another cell does it, the call of that helper for a sample: there it can be kept."""
    helper = program.enclosing_function(decode)
    if helper is None or program.place(decode).cell == program.place(record.function).cell:
        return decode
    for call in program.within(record.function, ast.Call):
        function = program.function_of(call)
        if function is helper or (function is not None and helper in program.reach(function)):
            return call
    return decode


def _hit(program: Program, decode: ast.Call, resize: Resize, record: SampleFunction) -> Hit:
    name, by = program.text(decode.func), program.text(resize.call.func)
    size = f" to {resize.size_px} px" if resize.size_px else ""
    fix = "decode and resize once, keep the pixels (a mapped `.npy`, or small copies of the files), and only augment here"
    if _in_tf_data(program, decode):
        fix = "put `.cache(path)` behind the `map` that decodes and resizes, before the one that augments"
    return Hit(
        _asked_at(program, decode, record),
        f"`{name}` decodes and `{by}` resizes{size} the same images again in every epoch; nothing keeps the result",
        evidence={"decode": name, "resize": by, "size_px": resize.size_px},
        fix=fix,
        kind="nit" if _is_hidden(program, decode) and not _is_dear(program, resize.call) else None,
    )


def _is_hidden(program: Program, decode: ast.Call) -> bool:
    """By TensorFlow itself, in a `map` with several calls at once: beside the step, unless many epochs are sure to come."""
    if not program.name(decode).startswith("tf."):
        return False
    own = program.enclosing_function(decode)
    maps = []
    for call in program.calls_to("map"):
        given = program.argument(call, "map_func", 0)
        function = program.callable_of(given) if given is not None else None
        if function is not None and (program.index.holds(function, decode) or own in program.reach(function)):
            maps.append(program.argument(call, "num_parallel_calls", 1))
    if not maps or any(given is None or program.value(given) in (None, 1) for given in maps):
        return False
    counts = [num_epochs(program, fit) for fit in program.facts.fits if fit.kind == "keras"]
    counts += [loop.num_epochs for loop in program.facts.training_loops]
    stops = any(True for _ in program.calls_to("EarlyStopping"))
    return stops or not any(isinstance(count, int | float) and count >= _SURELY_MANY for count in counts)


def _is_dear(program: Program, resize: ast.Call) -> bool:
    """Reads many pixels for each it writes: `antialias=True`, areas, cubic."""
    method = program.text(program.argument(resize, "method", 2) or ast.Constant("")).lower()
    return program.value(program.argument(resize, "antialias")) is True or any(word in method for word in _DEAR_METHODS)


def _from_folders(program: Program) -> Iterator[Hit]:
    """Data sets of libraries that read folders of pictures: as often as there are epochs, unless a cache comes behind them."""
    cached = any(program.method(call) in ("cache", "snapshot") for call in program.nodes(ast.Call))
    for feed in keras_feeds(program):
        count = num_epochs(program, feed.fit)
        reads = [call for call in feed.made_of if program.method(call) in FOLDER_READERS]
        if reads and not cached and not few(count, below=_MIN_EPOCHS):
            yield _folder_hit(program, reads[0], count)
    for call, count in (*_torch_folders(program), *_fastai_folders(program)):
        yield _folder_hit(program, call, count)


def _overlapping(program: Program) -> Iterator[Hit]:
    """`for name in names[i : i + n]` in the code of sample `i`: each file is decoded by n samples."""
    for record in program.facts.per_sample:
        names = parameters(record.function) if isinstance(record.function, FunctionNode) else []
        if len(names) < 2 or record.kind != "getitem":
            continue
        for loop in program.within(record.function, ast.For, ast.comprehension):
            over = loop.iter if isinstance(loop.iter, ast.Subscript) else program.latest(loop.iter)
            window = over.slice if isinstance(over, ast.Subscript) else None
            if not isinstance(window, ast.Slice) or not _is_sliding(program, window, names[1]):
                continue
            body: list[ast.AST] = [*loop.body] if isinstance(loop, ast.For) else [program.parent(loop) or loop]
            calls = [call for block in body for call in program.facts.decode_calls(block)]
            decode = next((call for call in calls if not is_kept(program, call)), None)
            if decode is not None and over is not None:
                name, length = program.text(decode.func), program.text(window.upper.right)  # type: ignore[union-attr]
                yield Hit(
                    decode,
                    f"`{name}` decodes each file for every window `{program.text(over)}` it is in: `{length}` times an epoch",
                    evidence={"decode": name, "window": length},
                    fix="decode each file once, keep the pixels (a mapped `.npy` for each sequence), and cut windows out of that",
                )
                return


def _is_sliding(program: Program, window: ast.Slice, index: str) -> bool:
    """`i : i + n`, with `i` the number of the sample or a sum with it: not counted in windows, strided or drawn."""
    if window.lower is None or window.step is not None or not isinstance(window.upper, ast.BinOp):
        return False
    same = isinstance(window.upper.op, ast.Add) and program.text(window.upper.left) == program.text(window.lower)
    first = window.lower
    given = first if not isinstance(first, ast.Name) or first.id == index else program.latest(first)
    if not same or given is None or program.value(window.upper.right) == 1:
        return False
    counted = any(isinstance(part, ast.Mult | ast.Mod | ast.Call) for part in ast.walk(given))
    return not counted and any(isinstance(part, ast.Name) and part.id == index for part in ast.walk(given))


def _torch_folders(program: Program) -> Iterator[tuple[ast.Call, Any]]:
    """`ImageFolder(…, transform=…)` behind a loader that trains, where the pipeline resizes and does not crop at random sizes."""
    counts = [loop.num_epochs for loop in program.facts.training_loops if loop.num_epochs is not None]
    for loader in program.facts.loaders:
        if loader.framework != "torch" or loader.role != "train" or loader.dataset_class is not None or not loader.decodes:
            continue
        made = next((call for call in program.made_of(loader.dataset) if program.method(call) in DECODING_DATASETS), None)
        if made is None:
            continue
        steps = [step for word in made.keywords if word.arg == "transform" for step in program.made_of(word.value, contents=True)]
        kinds = {program.method(step) for step in steps}
        count = max((item for item in counts if isinstance(item, int)), default=UNKNOWN)
        if kinds & PIPELINE_RESIZERS and not kinds & RANDOM_SIZERS and not few(count, below=_MIN_EPOCHS):
            yield made, count


def _fastai_folders(program: Program) -> Iterator[tuple[ast.Call, Any]]:
    counts = [fit.num_epochs for fit in program.facts.fits if fit.kind == "fastai"]
    known = [count for count in counts if isinstance(count, int | float)]
    if not counts or (len(known) == len(counts) and sum(known) < _MIN_EPOCHS):
        return
    for call in program.nodes(ast.Call):
        holder, _, method = program.name(call).rpartition(".")
        if method.startswith("from_") and holder.rpartition(".")[2] in _FASTAI_SETS:
            yield call, sum(known) if len(known) == len(counts) else UNKNOWN


def _folder_hit(program: Program, call: ast.Call, count: Any) -> Hit:
    name = program.text(call.func)
    epochs = f"each of {int(count)} epochs" if isinstance(count, int | float) else "every epoch"
    size = program.argument(call, "image_size") or program.argument(call, "target_size") or program.argument(call, "size")
    to = f" to {program.text(size)}" if size is not None else ""
    if program.method(call) in DIRECTORY_SETS:
        target = (program.targets(call) or ["dataset"])[0]
        fix = f'`{target} = {target}.cache("pixels")` behind it, before anything random (without a name it is kept in memory)'
    elif program.method(call) in FLOWS:
        fix = "read with `keras.utils.image_dataset_from_directory(…).cache(…)`, and augment with layers behind it"
    else:
        fix = "write copies of the pictures at that size once and read those, or keep the decoded pixels in a mapped array"
    return Hit(
        call,
        f"`{name}` decodes and resizes{to} the same files again in {epochs}; nothing keeps the result",
        evidence={"call": name, "epochs": count if isinstance(count, int | float) else None},
        fix=fix,
        kind=None if isinstance(count, int | float) and count >= _MANY_EPOCHS else "nit",
    )


def _not_resized(program: Program) -> Iterator[Hit]:
    """A data set or `map` of the file that decodes at full size: worth keeping where many epochs are known to come."""
    cached = any(program.method(call) in ("cache", "snapshot") for call in program.nodes(ast.Call))
    for feed in keras_feeds(program):
        count = num_epochs(program, feed.fit)
        if isinstance(count, int | float) and count >= _MANY_EPOCHS:
            maps = [call for call in feed.made_of if program.method(call) == "map" and call.args and not cached]
            mapped = [function for call in maps if (function := program.callable_of(call.args[0])) is not None]
            functions = [*item_functions(program, program.assigned_class(feed.given)), *mapped]
            calls = [call for function in functions for call in program.facts.decode_calls(function)]
            decode = next((call for call in calls if not is_kept(program, call)), None)
            if decode is not None:
                name = program.text(decode.func)
                yield Hit(
                    decode,
                    f"`{name}` decodes the same images again in each of {int(count)} epochs; nothing keeps the result",
                    evidence={"decode": name, "epochs": int(count)},
                    fix="put `.cache(path)` behind the `map` that decodes, before anything random"
                    if mapped
                    else "decode once, keep the pixels (a mapped `.npy` of uint8, or in memory), and only augment here",
                    kind="nit" if _is_hidden(program, decode) else None,
                )
                return


def _in_tf_data(program: Program, decode: ast.Call) -> bool:
    record = program.facts.in_per_sample(decode)
    return record is not None and record.kind == "map"


def _decode(program: Program, record: SampleFunction) -> ast.Call | None:
    """The first decode that runs for every sample and is not kept."""
    calls = [call for function in functions_run(program, record) for call in program.facts.decode_calls(function)]
    return next((call for call in calls if runs_for_each_sample(program, call) and not is_kept(program, call)), None)


def _is_one_pass(program: Program) -> bool:
    """Nothing in the file goes over the data more than once."""
    facts = program.facts
    epochs = [loop.num_epochs for loop in facts.training_loops] + [fit.num_epochs for fit in facts.fits if fit.kind != "sklearn"]
    if epochs:
        return all(isinstance(count, int) and count <= 1 for count in epochs)
    if any("epoch" in name.id.lower() for loop in program.nodes(ast.For) for name in program.within(loop.target, ast.Name)):
        return False
    predicts = any(program.method(call) in ("predict", "predict_on_batch") for call in program.nodes(ast.Call))
    return predicts or bool(facts.forwards) or bool(facts.evaluations) or not facts.datasets


def _has_small_copies(program: Program) -> bool:
    """Some function or loop outside the per-sample code resizes pictures and writes them."""
    for call in program.nodes(ast.Call):
        if not is_resizing(program, call) or program.facts.in_per_sample(call) is not None:
            continue
        block: ast.AST | None = program.enclosing_function(call) or next(iter(program.loops_around(call)), None)
        if block is not None and any(is_save(program, other) for other in program.within(block, ast.Call)):
            return True
    return False


def _runs_once(program: Program, record: SampleFunction) -> bool:
    """A data set for prediction only, or one whose loaders are gone through outside any loop over epochs."""
    if record.owner is None:
        return False
    loaders = [loader for loader in program.facts.loaders if loader.dataset_class is record.owner]
    names = [name for loader in loaders for name in loader.targets] or [record.owner.name]
    if all(_ONE_PASS & set(words(name)) for name in names):
        return True
    return bool(loaders) and all(_is_gone_through_once(program, loader) for loader in loaders)


def _is_gone_through_once(program: Program, loader: BatchSource) -> bool:
    uses = [loader.call] if not loader.targets else [
        node for node in program.nodes(ast.Name) if node.id in loader.targets and isinstance(node.ctx, ast.Load)
    ]  # fmt: skip
    loops = [loop for use in uses for loop in _loops_over(program, use)]
    training = [item.node for item in program.facts.training_loops]
    once = [loop is not None and loop not in training and not program.loops_around(loop) for loop in loops]
    return bool(once) and all(once)


def _loops_over(program: Program, use: ast.expr) -> Iterator[ast.AST | None]:
    """The loops that go over this loader; None where it is handed to something that may go over it again and again."""
    inner: ast.AST = use
    for above in program.ancestors(use):
        if isinstance(above, ast.For) and program.index.holds(above.iter, inner):
            yield above
            return
        if isinstance(above, ast.Call):
            function = program.function_of(above)
            if function is not None:
                yield from _loops_in(program, function, above, inner)
                return
            if program.name(above) not in (
                "enumerate",
                "tqdm",
                "tqdm.tqdm",
                "tqdm.auto.tqdm",
                "tqdm.notebook.tqdm",
                "len",
                "iter",
                "next",
            ):
                yield None
                return
            if program.name(above) in ("len", "iter", "next"):
                return
        if isinstance(above, ast.stmt):
            return
        inner = above


def _loops_in(program: Program, function: FunctionNode, call: ast.Call, given: ast.AST) -> Iterator[ast.AST | None]:
    """The loops of a function over the parameter that is given; None where the call itself is repeated."""
    if program.loops_around(call):
        yield None
    for name in parameters(function):
        if program.argument_for(call, function, name) is given:
            for loop in program.within(function, ast.For):
                if any(part.id == name for part in program.within(loop.iter, ast.Name)):
                    yield loop
