"""Where a program trains: loops that call `backward`, calls of `fit` and `train`, each with its epochs, its data and its
model.

A loop is followed upwards through the functions that hold it: the loop over batches is often in a function that the loop over
epochs calls, in another cell or another file.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from unchoke_doctor.code.program import COMPREHENSIONS, LOOPS, Loop, Program, remembered
from unchoke_doctor.code.trace import given, number, origins

_STEPS = frozenset({"backward", "step"})
_MOST_CALLERS = 8
_DEEPEST = 4
_KERAS_OPTIONS = frozenset(
    {"epochs", "nb_epoch", "validation_data", "callbacks", "steps_per_epoch", "batch_size", "validation_split"}
)
_FASTAI = frozenset({"fit_one_cycle", "fine_tune", "fit_flat_cos", "fit_sgdr"})

NETWORK = re.compile(
    r"(?:^|_)(?:model|net|network|unet|resnet|vgg|encoder|backbone|classifier|cnn|vit|learner|extractor)\w*$|^(?:model|net)\w*$",
    re.IGNORECASE,
)


@dataclass(frozen=True, eq=False)
class Training:
    """One training. `node` is where a reader would point: the loop over batches, or the call that trains."""

    kind: Literal["torch", "keras", "tape", "lightning", "trainer", "fastai", "yolo"]
    node: ast.AST
    chain: tuple[ast.AST, ...]
    """The loops and calls around `node`, from the inside out, across functions; the last one is all that runs."""
    epochs: int | None
    data: ast.expr | None
    model: ast.expr | None
    counts: bool = False
    """The loop counts: each round is a pass over all data, or nothing tells."""


@remembered
def trainings(program: Program) -> list[Training]:
    """Every training of the program, those in neighbours included, in order."""
    return sorted([*_loops(program), *_fits(program)], key=lambda one: program.order[one.node])


def own_node(program: Program, training: Training) -> ast.AST | None:
    """Where a training shows in the file that is linted: its loop, or the call of a neighbour's function that trains."""
    return next((part for part in (training.node, *training.chain) if program.is_own(part)), None)


def _loops(program: Program) -> Iterator[Training]:
    """Loops with a backward pass; the same loop with several is one training."""
    seen: set[tuple[ast.AST, ast.AST]] = set()
    for call in program.calls_to("backward", "zero_grad", "gradient", "apply_gradients"):
        if not isinstance(call.func, ast.Attribute) or _is_no_step(program, call):
            continue
        kind: Literal["torch", "tape"] = "torch" if call.func.attr in ("backward", "zero_grad") else "tape"
        for chain in _chains(program, call):
            loops = [part for part in chain if isinstance(part, LOOPS)]
            if not loops:
                continue
            step = _step_loop(program, loops)
            if call.func.attr == "zero_grad" and not _STEPS & {program.last(one) for one in program.reached(step)}:
                continue  # an evaluation that clears gradients
            if (step, chain[-1]) in seen:
                continue
            seen.add((step, chain[-1]))
            outer = chain[chain.index(step) + 1 :]
            epochs = _passes(program, outer)
            data = step.iter if isinstance(step, ast.For | ast.AsyncFor) else None
            counts = data is None or bool(list(_counters(program, data)))
            yield Training(kind, step, tuple(outer), epochs, data, _stepped_model(program, step), counts)


def _is_no_step(program: Program, call: ast.Call) -> bool:
    """`np.gradient` is no training step; nor are gradients with respect to anything but weights (saliency)."""
    if program.last(call) == "gradient":
        return "trainable" not in ast.dump(call) and all(word.arg is not None for word in call.keywords)
    return program.name(call).startswith("numpy.")


def _step_loop(program: Program, loops: list[Loop]) -> Loop:
    """The innermost loop over data: an inner `for _ in range(k)` repeats a step, a `while` may be the loop over batches."""
    over_data = (one for one in loops if isinstance(one, ast.For | ast.AsyncFor) and not list(_counters(program, one.iter)))
    return next(over_data, loops[0])


def _counters(program: Program, node: ast.expr) -> Iterator[ast.Call]:
    """The calls of `range` and its kin behind what a loop goes over."""
    for end in origins(program, node):
        if isinstance(end, ast.Call) and program.last(end) in ("range", "trange", "count", "arange"):
            yield end


def _chains(program: Program, node: ast.AST, deepest: int = _DEEPEST) -> Iterator[list[ast.AST]]:
    """The loops around a node and, through the calls of its function, around those; each with what runs it all at its end."""
    loops: list[ast.AST] = []
    function = None
    for part in program.above(node):
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            function = part
            break
        if isinstance(part, LOOPS):
            loops.append(part)
    callers = program.callers(function)[:_MOST_CALLERS] if function is not None and deepest else []
    if not callers:
        yield [*loops, function] if function is not None else loops
    for call in callers:
        for rest in _chains(program, call, deepest - 1):
            yield [*loops, call, *rest]


def _passes(program: Program, chain: Iterable[ast.AST]) -> int | None:
    """How often the data is passed: the product of the counted loops around; None where no count is known."""
    counts = [count for part in chain if isinstance(part, LOOPS) and (count := _count(program, part)) is not None]
    return math.prod(counts) if counts else None


def _count(program: Program, loop: Loop) -> int | None:
    """The number of rounds of `for … in range(n)` or `while epoch < n`."""
    if isinstance(loop, ast.While):
        bounds = [loop.test.comparators] if isinstance(loop.test, ast.Compare) else []
    else:
        bounds = [call.args[:2] for call in _counters(program, loop.iter) if program.last(call) != "count"]
    for numbers in ([number(program, part) for part in some] for some in bounds):
        rounds = (numbers[-1] or 0) - (numbers[0] or 0 if len(numbers) > 1 else 0) if numbers else 0
        if 0 < rounds < 1e6:
            return int(rounds)
    return None


def _stepped_model(program: Program, step: ast.AST) -> ast.expr | None:
    """The network of a loop: what `.train()` was called on, or what is called with a name and its result goes into the loss."""
    for call in program.reached(step):
        held = call.func
        name = (
            held.id
            if isinstance(held, ast.Name)
            else held.attr
            if isinstance(held, ast.Attribute) and is_self(held.value)
            else ""
        )
        if NETWORK.search(name) and not without_gradients(program, call):
            return held
    for call in program.calls_to("train"):
        if isinstance(call.func, ast.Attribute) and not call.args and program.function(call) is program.function(step):
            return call.func.value
    return None


def is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _fits(program: Program) -> Iterator[Training]:
    keras = program.imports_any("keras", "tensorflow", "tf_keras", "segmentation_models", "tensorflow_hub")
    for call in program.calls_to("fit", "fit_generator", "train", *_FASTAI):
        if not isinstance(call.func, ast.Attribute) or program.target(call) is not None:
            continue
        kind = _kind_of_fit(program, call, keras)
        if kind is None:
            continue
        chain = next(_chains(program, call))
        epochs, rounds = _fit_epochs(program, call, kind), _passes(program, chain)
        epochs = epochs * rounds if epochs is not None and rounds is not None else epochs
        data = given(program, call, "x" if kind == "keras" else "data", 0) or given(program, call, "generator")
        yield Training(kind, call, tuple(chain), epochs, data, call.func.value)


def _kind_of_fit(
    program: Program, call: ast.Call, keras: bool
) -> Literal["keras", "lightning", "trainer", "fastai", "yolo"] | None:
    assert isinstance(call.func, ast.Attribute)
    verb, words = call.func.attr, {word.arg for word in call.keywords}
    if verb in _FASTAI:
        return "fastai"
    makers = {program.last(end) for end in origins(program, call.func.value) if isinstance(end, ast.Call)}
    if verb == "train":
        if any(name.endswith("Trainer") for name in makers) or (
            program.imports_any("transformers") and "trainer" in program.name(call.func.value).lower()
        ):
            return "trainer"
        return "yolo" if program.imports_any("ultralytics") and words & {"data", "epochs"} else None
    if "Trainer" in makers and program.imports_any("lightning", "pytorch_lightning"):
        return "lightning"
    if any(name.endswith(("_learner", "Learner")) for name in makers):
        return "fastai"
    is_model = makers & {"Sequential", "Model", "load_model"} or any("applications" in name for name in makers)
    return "keras" if keras and (words & _KERAS_OPTIONS or verb == "fit_generator" or is_model) else None


def _fit_epochs(program: Program, call: ast.Call, kind: str) -> int | None:
    name, position = {"keras": ("epochs", 3), "fastai": ("n_epoch", 0), "yolo": ("epochs", None)}.get(kind, ("", None))
    places, default = [call], 1.0 if kind == "keras" else None
    if kind == "lightning":
        name, places = "max_epochs", program.calls_to("Trainer")
    elif kind == "trainer":
        name, places, default = "num_train_epochs", program.calls_to("TrainingArguments", "Seq2SeqTrainingArguments"), 3.0
    exprs = [expr for one in places for other in (name, "nb_epoch") if (expr := given(program, one, other, position)) is not None]
    found = number(program, exprs[0]) if exprs else default
    return int(found) if found is not None and 0 < found < 1e6 else None


# Forward passes -----------------------------------------------------------------------------------------------------------

_PASSES = frozenset({"forward", "forward_features", "encode_image", "get_image_features", "extract_features"})
_BACKWARD = frozenset(
    {"backward", "zero_grad", "manual_backward", "grad", "gradient", "apply_gradients", "train_on_batch", "fit"}
)
# Networks of other frameworks, and wrappers that switch gradients off by themselves.
_OTHER_RUNTIMES = re.compile(
    r"keras|tensorflow|sklearn|xgboost|ultralytics|YOLO|MTCNN|pipeline|onnx|openvino|tflite|Interpreter|jax|flax|SentenceTransformer"
)


def trains_in(program: Program, block: ast.AST) -> bool:
    """Does a backward pass or a `fit` run in this block?"""
    return any(isinstance(call.func, ast.Attribute) and call.func.attr in _BACKWARD for call in program.reached(block))


@remembered
def torch_passes(program: Program) -> list[ast.Call]:
    """The calls that run a torch network that a variable holds: `model(x)`, `self.encoder(x)`, `clip.encode_image(x)`."""
    if not program.imports_any("torch", "torchvision", "timm", "segmentation_models_pytorch"):
        return []
    named = program.calls_to("eval", "parameters", "load_state_dict", "state_dict")
    networks = {ast.dump(call.func.value) for call in named if isinstance(call.func, ast.Attribute)}
    return [call for call in program.calls if _is_pass(program, call, networks)]


def _is_pass(program: Program, call: ast.Call, networks: set[str]) -> bool:
    held = call.func
    if isinstance(held, ast.Attribute) and (held.attr in _PASSES or held.attr == "module"):
        held = held.value
    elif program.target(call) is not None:
        return False
    root = held.value if isinstance(held, ast.Subscript) else held
    if not (call.args or call.keywords) or not isinstance(root, ast.Name | ast.Attribute):
        return False
    if isinstance(root, ast.Attribute) and not is_self(root.value):
        return ast.dump(root) in networks
    name = root.id if isinstance(root, ast.Name) else root.attr
    if isinstance(root, ast.Name):
        bindings = program.bound(root)
        module = program.module(root)
        unknown = all(one.how == "definition" for one in bindings) and (bindings or module.stars or name in module.imports)
        if unknown and (bindings or ast.dump(held) not in networks):
            return False  # a class or a function
        over = [one.value for one in bindings if one.how == "element" and one.value is not None]  # `for m in models`
        names = (part.id for expr in over for part in ast.walk(expr) if isinstance(part, ast.Name) and NETWORK.search(part.id))
        name = next(names, name)
    makers = [program.name(end) for end in origins(program, root) if isinstance(end, ast.Call)]
    named = ast.dump(held) in networks or bool(NETWORK.search(name) and not name.isupper())
    return named and not any(_OTHER_RUNTIMES.search(maker) for maker in makers)


def without_gradients(program: Program, node: ast.AST) -> bool:
    """Inside a block under `no_grad` or `inference_mode`."""
    items = [item for part in program.above(node) if isinstance(part, ast.With) for item in part.items]
    return any(program.last(item.context_expr) in ("no_grad", "inference_mode") for item in items)


_COUNTED = frozenset({"range", "sample", "take", "islice", "choices", "head"})
_HANDFUL = 64


def handful(program: Program, loop: ast.AST) -> bool:
    """Does a loop surely take a few rounds: a small number, a list that is written out, a slice or sample of a few, a `break`?"""
    if breaks_early(program, loop):
        return True
    first = loop.generators[0].iter if isinstance(loop, COMPREHENSIONS) else getattr(loop, "iter", None)
    while isinstance(first, ast.Call) and first.args and program.last(first) in ("tqdm", "enumerate", "zip", "list"):
        first = first.args[0]  # a slice inside shows only here
    for end in (first, *origins(program, first)) if first is not None else ():
        stop: ast.AST | None = None
        match end:
            case ast.List(elts=[_, *_]) | ast.Tuple(elts=[_, *_]) | ast.Set() | ast.Dict(keys=[_, *_]):
                return True
            case ast.Subscript(slice=ast.Slice(upper=stop)):
                pass
            case ast.Call(args=[_, *_]) if program.last(end) in _COUNTED:
                stop = end.args[1 if program.last(end) == "range" and len(end.args) > 2 else -1]
            case ast.Call(func=ast.Attribute(attr="head" | "tail")):
                return True
        count = number(program, stop) if stop is not None else None
        if count is not None and 0 <= count <= _HANDFUL:
            return True
    return False


def breaks_early(program: Program, loop: ast.AST) -> bool:
    """Is a statement of a loop's body `break`, or `if i >= 9: break`?"""
    for part in loop.body if isinstance(loop, LOOPS) else ():
        match part:
            case ast.Break():
                return True
            case ast.If(test=ast.Compare(ops=[ast.Gt() | ast.GtE() | ast.Eq()], comparators=[bound]), body=[*_, ast.Break()]):
                if (number(program, bound) or _HANDFUL + 1) <= _HANDFUL:
                    return True
    return False
