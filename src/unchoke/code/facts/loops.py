"""The code that trains: loops over batches and epochs, whatever the framework; training by one call.

In comes a program, out go `Loop` and `Fit` records. A loop counts when a step of training (`backward`, an optimizer's step, a
tape) runs in its body, in the same function or in one that the body calls. Evaluation is in `evaluation`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from unchoke.code.constant_values import UNKNOWN, Values, is_number
from unchoke.code.facts.vocabulary import words
from unchoke.code.node_index import FunctionNode, LoopNode

Kind = Literal["torch", "lightning", "tape", "batch"]
_WRAPPED = frozenset(
    {"tqdm", "trange", "enumerate", "islice", "track", "progress_bar", "master_bar", "notebook_tqdm", "tqdm_notebook", "Bar"}
)
_RANGES = ("range", "trange", "tqdm.trange", "tqdm.auto.trange", "tqdm.notebook.trange", "count", "itertools.count")
NOT_EPOCHS = frozenset(
    {"fold", "folds", "split", "seed", "trial", "run", "lr", "rate", "param", "params", "config", "cfg", "name", "kind"}
)
STEPS = frozenset({"step", "steps", "iter", "iteration", "iterations", "batch", "it", "update", "updates"})
_COMBINED = ("itertools.product", "itertools.permutations", "itertools.combinations", "product", "ParameterGrid",
             "sklearn.model_selection.ParameterGrid")  # fmt: skip
_OPTIMIZER_WORDS = ("opt", "optim", "scaler")
FitKind = Literal["keras", "lightning", "hf", "fastai", "sklearn"]
_KERAS_OPTIONS = frozenset(
    {"epochs", "nb_epoch", "validation_data", "steps_per_epoch", "callbacks", "validation_split", "batch_size", "verbose",
     "workers", "initial_epoch", "validation_steps", "class_weight", "use_multiprocessing"}
)  # fmt: skip
_FASTAI = frozenset({"fine_tune", "fit_one_cycle", "fit_flat_cos", "fit_sgdr"})
_TRAINERS = frozenset({"Trainer", "Seq2SeqTrainer", "SFTTrainer"})


@dataclass(frozen=True, eq=False)
class Loop:
    """`node` is the loop over batches (or `training_step`); `epochs` the loop round it, maybe in another function."""

    node: LoopNode | FunctionNode
    kind: Kind
    epochs: LoopNode | None = None
    num_epochs: Any = None


def training_loops(program: Values) -> list[Loop]:
    """Every training loop once, in file order."""
    found: dict[ast.AST, Loop] = {}
    for call in program.calls_to("backward", "step", "GradientTape", "apply_gradients", "train_on_batch"):
        kind = step_kind(program, call)
        for loop in _loops_of(program, call, kind) if kind is not None else ():
            found.setdefault(loop.node, loop)
    for loop in _step_methods(program):
        found.setdefault(loop.node, loop)
    return sorted(found.values(), key=lambda loop: program.index.number[loop.node])


def step_kind(program: Values, call: ast.Call) -> Kind | None:
    """Is this call a step of training, and in which framework?"""
    method = program.method(call)
    if method == "backward" and isinstance(call.func, ast.Attribute):
        return "torch"
    if method == "step" and is_optimizer(program, program.receiver(call)):
        return "torch"
    if method == "apply_gradients" or (method == "GradientTape" and _is_applied(program, call)):
        return "tape"
    return "batch" if method == "train_on_batch" else None


def _is_applied(program: Values, tape: ast.Call) -> bool:
    """Do the gradients of this tape change anything: applied in its function, in what that calls, or where it is called from?"""
    function = program.enclosing_function(tape)
    uses = program.callers(function) if function is not None else []
    around = {item for item in (function, *(program.enclosing_function(use) for use in uses)) if item is not None}
    for call in program.calls_to("apply_gradients", "minimize", "assign_sub", "apply"):
        own = program.enclosing_function(call)
        called = function is not None and own in program.reach(function)
        if own in around or own is function or (own is None and uses) or called:
            return True
    return False


def is_optimizer(program: Values, node: ast.AST | None) -> bool:
    name = program.written(node).rpartition(".")[2].lower()
    if "sched" in name:
        return False
    if name.startswith(_OPTIMIZER_WORDS) or "optim" in name:
        return True
    made = program.made_by(node)
    return made.startswith("torch.optim.") and "lr_scheduler" not in made


def _loops_of(program: Values, mark: ast.AST, kind: Kind, depth: int = 0) -> Iterator[Loop]:
    """The batch loop round a step: in its own function, else round the calls of that function."""
    around = program.loops_around(mark)
    if around:
        node = _batch_loop(program, around)
        outer = around[around.index(node) + 1 :]
        epochs = _epoch_loop(program, outer, node)
        yield Loop(node, kind, epochs, count_of(program, epochs) if epochs is not None else None)
        return
    function = program.enclosing_function(mark)
    if function is None or depth > 6 or function.name == "training_step":
        return
    callers = program.callers(function)
    for call in callers:
        yield from _loops_of(program, call, kind, depth + 1)
    handed = any(isinstance(program.parent(node), ast.Call | ast.keyword) for node in program.names(function.name))
    whole = any(program.name(call).startswith("torch.optim.") for call in program.within(function, ast.Call))
    if handed and not callers and not whole:  # to an engine, which calls it for each batch
        yield Loop(function, kind)


def _batch_loop(program: Values, around: list[LoopNode]) -> LoopNode:
    """The innermost loop, unless it only repeats a step a few times inside a loop over a loader."""
    inner = around[0]
    if len(around) > 1 and isinstance(inner, ast.For) and is_short(program, inner) and _is_over_data(program, around[1]):
        return around[1]
    return inner


def is_short(program: Values, loop: ast.For) -> bool:
    """A few rounds, over what is written down or counted."""
    if isinstance(unwrapped(program, loop.iter), ast.Tuple | ast.List):
        return True
    count = count_of(program, loop)
    return isinstance(count, int) and count <= 8


def _is_over_data(program: Values, loop: LoopNode) -> bool:
    if not isinstance(loop, ast.For | ast.AsyncFor):
        return False
    counted = is_range(program, unwrapped(program, loop.iter)) or is_over_settings(program, loop)
    return not counted and "epoch" not in program.text(loop.target)


def is_over_settings(program: Values, loop: LoopNode) -> bool:
    """`for lr in [0.1, 0.01]`, `for width, depth in itertools.product(…)`: a few things written down, no batches."""
    if not isinstance(loop, ast.For | ast.AsyncFor):
        return False
    inner = unwrapped(program, loop.iter)
    if isinstance(inner, ast.Name) and not any(True for _ in program.added_to(inner.id)):
        inner = program.latest(inner) or inner
    if isinstance(inner, ast.Call):
        return program.name(inner) in _COMBINED
    return isinstance(inner, ast.Tuple | ast.List | ast.Set) and bool(inner.elts)


def unwrapped(program: Values, node: ast.expr) -> ast.expr:
    """What is really looped over: `loader` in `enumerate(tqdm(loader))`, also through a variable for the bar."""
    for _ in range(8):
        given = node if isinstance(node, ast.Call) else program.latest(node) if isinstance(node, ast.Name) else None
        if not isinstance(given, ast.Call) or program.method(given) not in _WRAPPED or not given.args:
            break
        node = given
        if program.method(given) == "trange":
            break
        node = given.args[0]
    return node


def is_range(program: Values, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and program.name(node) in _RANGES


def count_of(program: Values, loop: LoopNode) -> Any:
    """How often the loop runs, at most: a number, or UNKNOWN."""
    if isinstance(loop, ast.While):  # `while epoch < 30`
        test = loop.test if isinstance(loop.test, ast.Compare) and len(loop.test.ops) == 1 else None
        return most(program, test.comparators[0]) if test is not None and isinstance(test.ops[0], ast.Lt | ast.LtE) else UNKNOWN
    inner = unwrapped(program, loop.iter)
    if isinstance(inner, ast.Tuple | ast.List):
        return len(inner.elts)
    if not isinstance(inner, ast.Call) or not is_range(program, inner) or not inner.args:
        return UNKNOWN
    given = [most(program, item) for item in inner.args]
    if given[:2][-1] is UNKNOWN or (len(given) > 2 and given[2] != 1):
        return UNKNOWN
    return given[0] if len(given) == 1 else max(given[1] - (given[0] if isinstance(given[0], int) else 0), 0)


def most(program: Values, node: ast.AST | None) -> Any:
    """The largest number it may be, in whichever branch or call."""
    return max(filter(is_number, program.values(node)), default=UNKNOWN)


def _epoch_loop(program: Values, outer: list[LoopNode], node: LoopNode) -> LoopNode | None:
    """The loop over epochs round the batch loop: in the same function, else round the calls of the function."""
    for loop in outer:
        if says_epoch(program, loop):
            return loop
    plain = [loop for loop in outer if not (isinstance(loop, ast.For) and isinstance(loop.iter, ast.Tuple | ast.List))]
    if plain:
        return plain[0]
    if says_epoch(program, node):
        return node  # the whole set in one step: epochs and batches are one loop
    return _epochs_of_callers(program, program.enclosing_function(node), 0)


def _epochs_of_callers(program: Values, function: FunctionNode | None, depth: int) -> LoopNode | None:
    if function is None or depth > 5:
        return None
    for call in program.callers(function):
        around = program.loops_around(call)
        named = [loop for loop in around if says_epoch(program, loop)]
        if named or around:
            return (named or around)[0]
        found = _epochs_of_callers(program, program.enclosing_function(call), depth + 1)
        if found is not None:
            return found
    return None


def says_epoch(program: Values, loop: LoopNode) -> bool:
    """Is it a loop over epochs, by the name of its variable or of what it counts up to?"""
    if isinstance(loop, ast.While):
        return "epoch" in program.text(loop.test).lower()
    said = set(target_words(loop))
    if said & {"epoch", "epochs", "epoca", "epoche"}:
        return True
    counted = is_range(program, unwrapped(program, loop.iter))
    if counted and said & {"ep", "e"}:
        return True
    text = program.text(loop.iter).lower()
    return counted and "epoch" in text and not said & (NOT_EPOCHS | STEPS) and not re.search(r"step|batch|len\(|per_", text)


def target_words(loop: ast.For | ast.AsyncFor) -> list[str]:
    """The words in the names of a loop's variables."""
    return [word for node in ast.walk(loop.target) if isinstance(node, ast.Name) for word in words(node.id)]


def _step_methods(program: Values) -> Iterator[Loop]:
    """Lightning's `training_step` and Keras models' own `train_step`."""
    for owner in program.nodes(ast.ClassDef):
        bases = program.bases(owner)
        for node in owner.body:
            if not isinstance(node, ast.FunctionDef):
                continue
            if node.name == "training_step":
                yield Loop(node, "lightning")
            elif node.name == "train_step" and any(name.startswith("tf.keras") for name in bases):
                yield Loop(node, "tape")


@dataclass(frozen=True, eq=False)
class Fit:
    """`trainer` is the construction of the trainer, `settings` that of its arguments, where there are such."""

    call: ast.Call
    kind: FitKind
    num_epochs: Any
    trainer: ast.Call | None = None
    settings: ast.Call | None = None


def fits(program: Values) -> list[Fit]:
    """Every such call, in order."""
    calls = program.calls_to("fit", "fit_generator", "train", *_FASTAI)
    found = [_fit(program, call, call.func.attr) for call in calls if isinstance(call.func, ast.Attribute)]
    return [fit for fit in found if fit is not None]


def _fit(program: Values, call: ast.Call, method: str) -> Fit | None:
    trainer = _construction(program, program.receiver(call))
    hugging_face = trainer is not None and _is_hf(program, trainer)
    if method == "train":
        return _hf(program, call, trainer) if trainer is not None and hugging_face else None
    if method in _FASTAI:
        return Fit(call, "fastai", most(program, program.argument(call, "epochs" if method == "fine_tune" else "n_epoch", 0)))
    if trainer is not None and program.method(trainer) == "Trainer" and not hugging_face:
        return Fit(call, "lightning", most(program, program.argument(trainer, "max_epochs")), trainer)
    made = program.made_by(program.receiver(call))
    if made.startswith("fastai") or made.endswith("Learner"):
        return Fit(call, "fastai", most(program, program.argument(call, "n_epoch", 0)))
    if method == "fit_generator" or _is_keras(program, call, made):
        given = program.argument(call, "epochs", 3 if method == "fit" else 2) or program.argument(call, "nb_epoch")
        return Fit(call, "keras", most(program, given) if given is not None else 1)
    return Fit(call, "sklearn", None)


def _is_keras(program: Values, call: ast.Call, made: str) -> bool:
    if made.startswith("sklearn") or made.endswith("ImageDataGenerator") or _is_foreign(program, call, made):
        return False
    return made.startswith("tf.keras") or any(keyword.arg in _KERAS_OPTIONS for keyword in call.keywords)


def _is_foreign(program: Values, call: ast.Call, made: str) -> bool:
    """An estimator of another library, which takes epochs as well and saves as it likes; a network of Keras is compiled first."""
    if not made or made.startswith("tf.keras") or made in program.functions or made in program.classes:
        return False
    name = program.written(program.receiver(call))
    compiled = (program.written(program.receiver(other)) == name for other in program.calls_to("compile"))
    return "." in made and not made.startswith("?.") and not any(compiled)


def _construction(program: Values, node: ast.AST | None) -> ast.Call | None:
    """The call that made an object."""
    return next((made for made in reversed(program.choices(node).nodes) if isinstance(made, ast.Call)), None)


def _is_hf(program: Values, trainer: ast.Call) -> bool:
    name = program.name(trainer)
    if name.startswith("transformers.") or name.rpartition(".")[2] in _TRAINERS - {"Trainer"}:
        return True
    owner = program.classes.get(name)
    if owner is not None:
        return any(base.startswith("transformers.") for base in program.bases(owner))
    return name.endswith("Trainer") and program.keyword(trainer, "train_dataset") is not None


def _hf(program: Values, call: ast.Call, trainer: ast.Call) -> Fit:
    given = program.argument(trainer, "args", 1)
    settings = _construction(program, given)
    if settings is None:
        return Fit(call, "hf", 3, trainer)
    epochs = program.argument(settings, "num_train_epochs")
    return Fit(call, "hf", most(program, epochs) if epochs is not None else 3, trainer, settings)
