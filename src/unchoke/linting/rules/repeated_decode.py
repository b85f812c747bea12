"""The same images decoded and resized again in every epoch.

Decoding a photo and resizing it gives the same pixels in every epoch. With 30 epochs the work is done 30 times, and on a machine
with few cores the network waits for the decoder.

**Write instead.** Decode and resize once, keep the small pixels, and augment those:

    small = np.load("images_224.npy", mmap_mode="r")           # made once: n x 224 x 224 x 3, uint8
    return self.augment(Image.fromarray(small[index])), label

In tf.data put `.cache(path)` between the `map` that decodes and the `map` that augments. `unchoke fit` and `unchoke extract`
decode each photo once and keep what the frozen part of the network made of it.

**When this is fine.** One pass only (prediction, feature extraction). Files that already are small copies. Crops sized at random
out of the full image (`RandomResizedCrop`), which need it; there a copy somewhat larger than the crop still helps. A data set
whose small copies would not fit on the disk.

Holds on every device and for every version.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.facts.keeping import is_kept, is_save
from unchoke.code.facts.loaders import BatchSource
from unchoke.code.facts.origins import per_sample_records, record_at, runs_for_each_sample
from unchoke.code.facts.per_sample import SampleFunction
from unchoke.code.facts.sizing import Resize, functions_run, is_resizing, sizing
from unchoke.code.facts.vocabulary import words
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
_ONE_PASS = frozenset({"test", "infer", "inference", "pred", "predict", "prediction", "submission", "sub", "unseen", "query"})


def check(program: Program) -> Iterator[Hit]:
    if _is_one_pass(program) or _has_small_copies(program):
        return
    said: set[ast.Call] = set()
    for record in per_sample_records(program):
        decode = _decode(program, record)
        if decode is None or decode in said or _runs_once(program, record):
            continue
        found = sizing(program, record)
        own = [item for item in found.resizes if item.pipeline is None]
        resizes = own if found.by_random_crop else found.resizes
        if resizes:
            said.add(decode)
            yield _hit(program, decode, resizes[0])


def _hit(program: Program, decode: ast.Call, resize: Resize) -> Hit:
    name, by = program.text(decode.func), program.text(resize.call.func)
    size = f" to {resize.size_px} px" if resize.size_px else ""
    fix = "decode and resize once, keep the pixels (a mapped `.npy`, or small copies of the files), and only augment here"
    if _in_tf_data(program, decode):
        fix = "put `.cache(path)` behind the `map` that decodes and resizes, before the one that augments"
    return Hit(
        decode,
        f"`{name}` decodes and `{by}` resizes{size} the same images again in every epoch; nothing keeps the result",
        evidence={"decode": name, "resize": by, "size_px": resize.size_px},
        fix=fix,
    )


def _in_tf_data(program: Program, decode: ast.Call) -> bool:
    record = record_at(program, decode)
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
        if not is_resizing(program, call) or record_at(program, call) is not None:
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
