"""Where a program trains: loops that call `backward`, calls of `fit` and `train`, each with its epochs, its data and its model.

A loop is followed upwards through the functions that hold it: the loop over batches is often in a function that the loop over epochs
calls, in another cell or another file.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from unchoke_doctor.code.program import COMPREHENSIONS, LOOPS, Program
from unchoke_doctor.code.trace import given, number, origins, value

_MOST_CALLERS = 8
_DEEPEST = 4
_KERAS_OPTIONS = frozenset({"epochs", "nb_epoch", "validation_data", "callbacks", "steps_per_epoch", "batch_size", "validation_split"})
_FASTAI = frozenset({"fit_one_cycle", "fine_tune", "fit_flat_cos", "fit_sgdr"})

NETWORK = re.compile(r"(?:^|_)(?:model|net|network|unet|resnet|vgg|encoder|backbone|classifier|cnn|vit|learner|extractor)\w*$|^(?:model|net)\w*$", re.IGNORECASE)


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

    @property
    def outermost(self) -> ast.AST:
        return self.chain[-1] if self.chain else self.node


def trainings(program: Program) -> list[Training]:
    """Every training of the program, those in neighbours included, in order."""
    if "trainings" not in program.memory:
        found = [*_loops(program), *_fits(program)]
        program.memory["trainings"] = sorted(found, key=lambda one: program.order[one.node])
    return program.memory["trainings"]  # type: ignore[return-value]


def own_node(program: Program, training: Training) -> ast.AST | None:
    """Where a training shows in the file that is linted: its loop, or the call of a neighbour's function that trains."""
    return next((part for part in (training.node, *training.chain) if program.is_own(part)), None)


def _loops(program: Program) -> Iterator[Training]:
    """Loops with a backward pass; the same loop with several is one training."""
    seen: set[tuple[ast.AST, ast.AST]] = set()
    for call in program.calls_to("backward", "gradient", "apply_gradients"):
        if not isinstance(call.func, ast.Attribute) or _is_no_step(program, call):
            continue
        kind: Literal["torch", "tape"] = "torch" if call.func.attr == "backward" else "tape"
        for chain in _chains(program, call):
            loops = [part for part in chain if isinstance(part, LOOPS)]
            if not loops:
                continue
            step = _step_loop(program, loops)
            if (step, chain[-1]) in seen:
                continue
            seen.add((step, chain[-1]))
            outer = chain[chain.index(step) + 1 :]
            epochs = _passes(program, [part for part in outer if isinstance(part, LOOPS)])
            data = step.iter if isinstance(step, ast.For | ast.AsyncFor) else None
            yield Training(kind, step, tuple(outer), epochs, data, _stepped_model(program, step, call))


def _is_no_step(program: Program, call: ast.Call) -> bool:
    """`np.gradient` and a `backward` method's own definition are no training steps; nor are gradients of an input (saliency)."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "gradient":
        return not any(part.arg is None or "trainable" in ast.dump(part) for part in call.keywords) and "trainable" not in ast.dump(call)
    return program.name(call).startswith("numpy.")


def _step_loop(program: Program, loops: list[ast.For | ast.AsyncFor | ast.While]) -> ast.For | ast.AsyncFor | ast.While:
    """The innermost loop over data: an inner `for _ in range(k)` repeats a step, a `while` may be the loop over batches."""
    for loop in loops:
        if isinstance(loop, ast.For | ast.AsyncFor) and not _is_count(program, loop.iter):
            return loop
    return loops[0]


def _is_count(program: Program, node: ast.expr) -> bool:
    return any(isinstance(end, ast.Call) and program.name(end).rpartition(".")[2] in ("range", "trange", "count", "arange") for end in origins(program, node))


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


def _passes(program: Program, loops: list[ast.AST]) -> int | None:
    """How often the data is passed: the product of the counted loops around; None where no count is known."""
    counts = [count for loop in loops if (count := _count(program, loop)) is not None]
    return math.prod(counts) if counts else None


def _count(program: Program, loop: ast.AST) -> int | None:
    """The number of rounds of `for … in range(n)` or `while epoch < n`."""
    if isinstance(loop, ast.While):
        test = loop.test
        found = number(program, test.comparators[0]) if isinstance(test, ast.Compare) and len(test.comparators) == 1 else None
        return int(found) if found is not None and 0 < found < 1e6 else None
    for end in origins(program, loop.iter) if isinstance(loop, ast.For | ast.AsyncFor) else ():
        if isinstance(end, ast.Call) and program.name(end).rpartition(".")[2] in ("range", "trange", "arange") and end.args:
            begin = number(program, end.args[0]) if len(end.args) > 1 else 0
            stop = number(program, end.args[1 if len(end.args) > 1 else 0])
            if stop is not None and 0 < stop - (begin or 0) < 1e6:
                return int(stop - (begin or 0))
    return None


def _stepped_model(program: Program, step: ast.AST, backward: ast.Call) -> ast.expr | None:
    """The network of a loop: what `.train()` was called on, or what is called with a name and its result goes into the loss."""
    for call in program.reached(step):
        if isinstance(call.func, ast.Name) and NETWORK.search(call.func.id):
            return call.func
        if isinstance(call.func, ast.Attribute) and NETWORK.search(call.func.attr) and is_self(call.func.value):
            return call.func
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
        outer = [part for part in chain if isinstance(part, LOOPS)]
        epochs = _fit_epochs(program, call, kind)
        rounds = _passes(program, list(outer))
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
    makers = {program.name(end).rpartition(".")[2] for end in origins(program, call.func.value) if isinstance(end, ast.Call)}
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
    if kind == "keras":
        expr = given(program, call, "epochs") or given(program, call, "nb_epoch") or given(program, call, "epochs", 3)
        found = number(program, expr) if expr is not None else 1
    elif kind in ("fastai", "yolo"):
        expr = given(program, call, "n_epoch", 0) if kind == "fastai" else given(program, call, "epochs")
        found = number(program, expr) if expr is not None else None
    else:
        name, default = ("max_epochs", None) if kind == "lightning" else ("num_train_epochs", 3.0)
        calls = program.calls_to("Trainer") if kind == "lightning" else program.calls_to("TrainingArguments", "Seq2SeqTrainingArguments")
        given_there = [given(program, one, name) for one in calls]
        found = next((number(program, one) for one in given_there if one is not None), default if calls else None)
    return int(found) if found is not None and 0 < found < 1e6 else None


def flag(program: Program, expr: ast.AST | None) -> bool | None:
    """True or False where an expression certainly is that."""
    found = value(program, expr)
    return found if isinstance(found, bool) else None


# Forward passes -----------------------------------------------------------------------------------------------------------

_PASSES = frozenset({"forward", "forward_features", "encode_image", "get_image_features", "extract_features"})
_BACKWARD = frozenset({"backward", "manual_backward", "grad", "gradient", "apply_gradients", "train_on_batch", "fit"})
# Networks of other frameworks, and wrappers that switch gradients off by themselves.
_OTHER_RUNTIMES = re.compile(
    r"keras|tensorflow|sklearn|xgboost|ultralytics|YOLO|MTCNN|pipeline|onnx|openvino|tflite|Interpreter|jax|flax|SentenceTransformer"
)


def trains_in(program: Program, block: ast.AST) -> bool:
    """Does a backward pass or a `fit` run in this block?"""
    return any(isinstance(call.func, ast.Attribute) and call.func.attr in _BACKWARD for call in program.reached(block))


def torch_passes(program: Program) -> list[ast.Call]:
    """The calls that run a torch network that a variable holds: `model(x)`, `self.encoder(x)`, `clip.encode_image(x)`."""
    if "passes" not in program.memory:
        some = program.calls if program.imports_any("torch", "torchvision", "timm", "segmentation_models_pytorch") else []
        named = [call.func.value for call in program.calls_to("eval", "parameters", "load_state_dict", "state_dict") if isinstance(call.func, ast.Attribute)]
        networks = {ast.dump(part) for part in named}
        program.memory["passes"] = [call for call in some if _is_pass(program, call, networks)]
    return program.memory["passes"]  # type: ignore[return-value]


def _is_pass(program: Program, call: ast.Call, networks: set[str]) -> bool:
    held = call.func
    if isinstance(held, ast.Attribute) and (held.attr in _PASSES or held.attr == "module"):
        held = held.value
    elif program.target(call) is not None:
        return False
    if not (call.args or call.keywords) or not isinstance(held, ast.Name | ast.Attribute | ast.Subscript):
        return False
    root = held.value if isinstance(held, ast.Subscript) else held
    if isinstance(root, ast.Name) and not any(binding.how in ("value", "item", "element", "parameter") for binding in program.bound(root)):
        return False  # a class or a function
    if isinstance(root, ast.Attribute) and not is_self(root.value):
        return ast.dump(root) in networks
    name = root.id if isinstance(root, ast.Name) else root.attr if isinstance(root, ast.Attribute) else ""
    for binding in program.bound(root) if isinstance(root, ast.Name) else ():
        if binding.how == "element" and binding.value is not None:  # `for m in models`
            name = next((part.id for part in ast.walk(binding.value) if isinstance(part, ast.Name) and NETWORK.search(part.id)), name)
    makers = [program.name(end) for end in origins(program, root) if isinstance(end, ast.Call)]
    if any(_OTHER_RUNTIMES.search(maker) for maker in makers):
        return False
    return ast.dump(held) in networks or bool(NETWORK.search(name) and not name.isupper())


def handful(program: Program, loop: ast.AST) -> bool:
    """Does a loop surely take a few rounds: a small number, a list that is written out, a slice or sample of a few?"""
    first = loop.generators[0].iter if isinstance(loop, COMPREHENSIONS) else getattr(loop, "iter", None)
    while isinstance(first, ast.Call) and first.args and program.name(first).rpartition(".")[2] in ("tqdm", "enumerate", "zip", "list"):
        first = first.args[0]  # a slice inside shows only here
    for end in (first, *origins(program, first)) if first is not None else ():
        if isinstance(end, ast.List | ast.Tuple | ast.Set | ast.Dict):
            return True
        stop: ast.AST | None = None
        if isinstance(end, ast.Subscript) and isinstance(end.slice, ast.Slice):
            stop = end.slice.upper
        elif isinstance(end, ast.Call) and end.args and program.name(end).rpartition(".")[2] in _COUNTED:
            stop = end.args[-1 if program.name(end).rpartition(".")[2] != "range" or len(end.args) < 3 else 1]
        elif isinstance(end, ast.Call) and isinstance(end.func, ast.Attribute) and end.func.attr in ("head", "tail"):
            return True
        count = number(program, stop) if stop is not None else None
        if count is not None and 0 <= count <= _HANDFUL:
            return True
    return False


_COUNTED = frozenset({"range", "sample", "take", "islice", "choices", "head"})
_HANDFUL = 64
