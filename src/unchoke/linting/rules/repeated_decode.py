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
data set whose small copies would not fit on the disk. Folders read for fewer than five epochs are not reported. It is a choke
where each file is decoded for several windows, where Python decodes and resizes in ten epochs and more, and where a library
reads a folder, or TensorFlow decodes beside the step with nothing prefetched, in a hundred and more. What is not resized, or
for how many epochs the file does not say, is a nit.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from unchoke.code.constant_values import UNKNOWN, is_number
from unchoke.code.facts.epochs import epoch_runs, few, item_functions, keras_feeds
from unchoke.code.facts.keeping import is_kept, is_save
from unchoke.code.facts.loaders import DIRECTORY_SETS, FLOWS
from unchoke.code.facts.loops import unwrapped
from unchoke.code.facts.per_sample import SampleFunction
from unchoke.code.facts.sizing import PIPELINE_RESIZERS, RANDOM_SIZERS, Resize, functions_run, is_resizing, sizing
from unchoke.code.facts.stakes import reads_ahead
from unchoke.code.facts.vocabulary import DECODING_DATASETS, words
from unchoke.code.node_index import names_in, parameters
from unchoke.code.program import Program
from unchoke.linting.questions import is_done_anew, torch_loaders, whole_round
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    group="input",
    stage="decode",
    title="images decoded and resized again in every epoch",
    gain="4.1 s to 1.0 s over 24 epochs of PNG files, decoded once and kept",
    claim="Planted chokes",
    command="unchoke extract",
    eased_by=("no-workers",),
    in_training=True,
)
_MIN_EPOCHS = 5
_MIN_SHOWN = 10
_MANY_EPOCHS = 20
_SURELY_MANY = 100
_FASTAI_SETS = frozenset({"ImageDataBunch", "ImageDataLoaders", "SegmentationDataLoaders", "ImageClassifierData"})
FOLDER_READERS = DIRECTORY_SETS | FLOWS - {"flow"}
_ONE_PASS = frozenset({"test", "infer", "inference", "pred", "predict", "prediction", "submission", "sub", "unseen", "query"})


def check(program: Program) -> Iterator[Hit]:
    if _is_one_pass(program) or _has_small_copies(program):
        return
    for call, count in _folders(program):
        if not few(count, below=_MIN_EPOCHS):
            yield _folder_hit(program, call, count)
    yield from _overlapping(program)
    said: set[ast.Call] = set()
    for record in program.facts.per_sample:
        calls = [call for function in functions_run(program, record) for call in program.facts.decode_calls(function)]
        decode = next((call for call in calls if is_done_anew(program, call)), None)
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


def _hit(program: Program, decode: ast.Call, resize: Resize, record: SampleFunction) -> Hit:
    """At the decode; where a helper in another cell does it, at the call of that helper for a sample: there it can be kept."""
    helper, name, by = program.enclosing_function(decode), program.text(decode.func), program.text(resize.call.func)
    asked = [call for call in program.within(record.function, ast.Call) if helper in program.reach(call)]
    here = not asked or program.place(decode).cell == program.place(record.function).cell
    size = f" to {resize.size_px} px" if resize.size_px else ""
    at = program.facts.in_per_sample(decode)
    fix = "decode and resize once, keep the pixels (a mapped `.npy`, or small copies of the files), and only augment here"
    if at is not None and at.kind == "map":
        fix = "put `.cache(path)` behind the `map` that decodes and resizes, before the one that augments"
    return Hit(
        decode if here else asked[0],
        f"`{name}` decodes and `{by}` resizes{size} the same images again in every epoch; nothing keeps the result",
        evidence={"decode": name, "resize": by, "size_px": resize.size_px},
        fix=fix,
        kind="nit" if _num_epochs(program) < _MIN_SHOWN or _is_hidden(program, decode) else None,
    )


def _is_hidden(program: Program, decode: ast.Call) -> bool:
    """By TensorFlow itself, in a `map` with several calls at once: beside the step, unless many epochs are sure to come."""
    own = program.enclosing_function(decode)
    parallel = []
    for call in program.calls_to("map") if program.name(decode).startswith("tf.") else ():
        function = program.callable_of(program.argument(call, "map_func", 0))
        if function is not None and (program.index.holds(function, decode) or own in program.reach(function)):
            given = program.argument(call, "num_parallel_calls", 1)
            parallel.append(given is not None and program.value(given) not in (None, 1))
    hidden = reads_ahead(program) or bool(program.calls_to("EarlyStopping")) or _num_epochs(program) < _SURELY_MANY
    return bool(parallel) and all(parallel) and hidden


def _num_epochs(program: Program) -> float:
    """The most that a training of the file has, as far as it says."""
    counts = [run.num_epochs for run in epoch_runs(program)] + [fit.num_epochs for fit in program.facts.fits]
    counts += [loop.num_epochs for loop in program.facts.training_loops]
    return max(filter(is_number, counts), default=0)


def _overlapping(program: Program) -> Iterator[Hit]:
    """`for name in names[i : i + n]` in the code of sample `i`: each file is decoded by n samples."""
    for record in program.facts.per_sample:
        names = parameters(record.function) if record.kind == "getitem" else []
        for loop in program.within(record.function, ast.For, ast.comprehension) if len(names) > 1 else ():
            over = loop.iter if isinstance(loop.iter, ast.Subscript) else program.latest(loop.iter)
            length = _window_length(program, over, names[1]) if isinstance(over, ast.Subscript) else ""
            calls = program.facts.decode_calls(whole_round(program, loop)) if length else []
            decode = next((call for call in calls if not is_kept(program, call)), None)
            if decode is not None and over is not None:
                name = program.text(decode.func)
                yield Hit(
                    decode,
                    f"`{name}` decodes each file for every window `{program.text(over)}` it is in: `{length}` times an epoch",
                    evidence={"decode": name, "window": length},
                    fix="decode each file once, keep the pixels (a mapped `.npy` for each sequence), and cut windows out of that",
                )
                return


def _window_length(program: Program, node: ast.Subscript, index: str) -> str:
    """`n` of `i : i + n`, with `i` the number of the sample or a sum with it: not counted in windows, strided or drawn."""
    window = node.slice
    if not isinstance(window, ast.Slice) or window.lower is None or not isinstance(window.upper, ast.BinOp):
        return ""
    first, length = window.lower, window.upper.right
    same = isinstance(window.upper.op, ast.Add) and program.text(window.upper.left) == program.text(first)
    given = first if not isinstance(first, ast.Name) or first.id == index else program.latest(first)
    if not same or window.step is not None or given is None or program.value(length) == 1:
        return ""
    counted = any(isinstance(part, ast.Mult | ast.Mod | ast.Call) for part in ast.walk(given))
    return program.text(length) if index in names_in(given) and not counted else ""


def _folders(program: Program) -> Iterator[tuple[ast.Call, Any]]:
    """Data sets of libraries that read folders of pictures, unless a cache comes behind them, and for how many epochs."""
    for feed in keras_feeds(program) if not program.calls_to("cache", "snapshot") else ():
        reads = [call for call in feed.made_of if program.method(call) in FOLDER_READERS]
        yield from ((call, feed.fit.num_epochs) for call in reads[:1])
    yield from _torch_folders(program)
    fits = [fit.num_epochs for fit in program.facts.fits if fit.kind == "fastai"]
    for call in program.nodes(ast.Call):
        holder, _, method = program.name(call).rpartition(".")
        if method.startswith("from_") and holder.rpartition(".")[2] in _FASTAI_SETS:
            yield call, sum(fits) if all(isinstance(item, int | float) for item in fits) else UNKNOWN


def _torch_folders(program: Program) -> Iterator[tuple[ast.Call, Any]]:
    """`ImageFolder(…, transform=…)` behind a loader that trains, where the pipeline resizes and does not crop at random sizes."""
    counts = [loop.num_epochs for loop in program.facts.training_loops if isinstance(loop.num_epochs, int)]
    for loader in torch_loaders(program):
        if loader.role != "train" or loader.dataset_class is not None or not loader.decodes:
            continue
        made = next((call for call in program.made_of(loader.dataset) if program.method(call) in DECODING_DATASETS), None)
        transform = program.argument(made, "transform") if made is not None else None
        kinds = {program.method(step) for step in program.made_of(transform, contents=True)}
        if made is not None and kinds & PIPELINE_RESIZERS and not kinds & RANDOM_SIZERS:
            yield made, max(counts, default=UNKNOWN)


def _folder_hit(program: Program, call: ast.Call, count: Any) -> Hit:
    name = program.text(call.func)
    known = count if isinstance(count, int | float) else None
    epochs = f"each of {int(known)} epochs" if known is not None else "every epoch"
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
        evidence={"call": name, "epochs": known},
        fix=fix,
        kind=None if known is not None and known >= _SURELY_MANY else "nit",
    )


def _not_resized(program: Program) -> Iterator[Hit]:
    """A data set or `map` of the file that decodes at full size: worth keeping where many epochs are known to come."""
    cached = program.calls_to("cache", "snapshot")
    for feed in keras_feeds(program):
        count = feed.fit.num_epochs
        if not isinstance(count, int | float) or count < _MANY_EPOCHS:
            continue
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
                kind="nit",
            )
            return


def _is_one_pass(program: Program) -> bool:
    """Nothing in the file goes over the data more than once."""
    facts = program.facts
    epochs = [loop.num_epochs for loop in facts.training_loops] + [fit.num_epochs for fit in facts.fits if fit.kind != "sklearn"]
    if epochs:
        return all(isinstance(count, int) and count <= 1 for count in epochs)
    named = any("epoch" in name.lower() for loop in program.nodes(ast.For) for name in names_in(loop.target))
    return not named and (bool(facts.forwards) or bool(facts.evaluations) or not facts.datasets)


def _has_small_copies(program: Program) -> bool:
    """Some function or loop outside the per-sample code resizes pictures and writes them."""
    for call in program.nodes(ast.Call):
        if is_resizing(program, call) and program.facts.in_per_sample(call) is None:
            blocks = [program.enclosing_function(call) or next(iter(program.loops_around(call)), None)]
            if any(is_save(program, other) for other in program.calls_in(block for block in blocks if block is not None)):
                return True
    return False


def _runs_once(program: Program, record: SampleFunction) -> bool:
    """A data set for prediction only, or one whose loaders are gone through outside any loop over epochs."""
    if record.owner is None:
        return False
    loaders = [loader for loader in program.facts.loaders if loader.dataset_class is record.owner]
    names = [name for loader in loaders for name in loader.targets]
    if all(_ONE_PASS & set(words(name)) for name in names or [record.owner.name]):
        return True
    uses = [use for name in names for use in program.names(name) if isinstance(use.ctx, ast.Load)]
    uses = [use for use in uses if program.name(program.parent(use)) not in ("len", "iter", "next")]
    return bool(uses) and all(_is_gone_through_once(program, use) for use in uses)


def _is_gone_through_once(program: Program, use: ast.Name) -> bool:
    """By a loop over it, or a call of a function of the file with it: in no loop, and nothing trains there."""
    place: ast.AST | None = program.statement(use)
    if not isinstance(place, ast.For) or unwrapped(program, place.iter) is not use:
        call = program.parent(use)
        place = program.function_of(call) if isinstance(call, ast.Call) else None
    trains = place is None or any(program.index.holds(place, loop.node) for loop in program.facts.training_loops)
    return not trains and not program.loops_around(use)
