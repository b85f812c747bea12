"""Runs over epochs: which loops they are, how often they go round, which code they run; the callbacks and the data of a fit.

In comes a program, out go `EpochRun` records, one for each loop over epochs that trains, callbacks as the expressions that make
them, and `Feed` records, one for each `fit` of Keras; how large a training is, as far as the file says. What is saved is told by
`saving`, loaders of PyTorch by `loaders`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from unchoke.code.constant_values import is_number
from unchoke.code.facts.loops import NOT_EPOCHS, STEPS, Fit, count_of, is_range, says_epoch, target_words, unwrapped
from unchoke.code.facts.origins import sources
from unchoke.code.node_index import FunctionNode, LoopNode
from unchoke.code.program import Program

MIN_EPOCHS = 5
_MEMORY = re.compile(
    r"(?:^|[._])(?:\w+_)?(?:feats?|features?)(?!\w*(?:extract|col|name|list))|embedding|bottleneck|latent", re.IGNORECASE
)
N = TypeVar("N", bound=ast.AST)
_DEEPEST = 12
_HARMLESS = re.compile(
    r"stop|lr|rate|schedul|tqdm|prog|plot|time|nan|freez|anneal|cycl|warm|decay|plateau|bar$|metric|print|gc|memory",
    re.IGNORECASE,
)
_LARGE = re.compile(
    r"resnet(?:50|101|152)|resnext|wide_resnet|densenet|efficientnet|convnext|vgg(?:16|19)|inception|xception|nasnet|regnet|"
    r"vit_|vit\b|ViT|swin|deit|beit|dino|clip|unet|Unet|UNet|deeplab|fpn|FPN|maskrcnn|fasterrcnn|retinanet|segformer|bert|BERT|gpt|GPT|t5|"
    r"ResNet(?:50|101|152)|DenseNet|EfficientNet|InceptionV3|InceptionResNet|Xception|VGG(?:16|19)|NASNet|ConvNeXt"
)
_MAKERS = (
    "torchvision.models.", "timm.create_model", "segmentation_models_pytorch.", "tf.keras.applications.", "transformers.",
    "segmentation_models.",
)  # fmt: skip
Does = Callable[[Program, ast.Call], bool]


@dataclass(frozen=True, eq=False)
class EpochRun:
    """`node` is the loop over epochs, `batches` the loop over batches, `functions` what the body calls in this file."""

    node: LoopNode
    batches: LoopNode | FunctionNode | None
    num_epochs: Any
    functions: tuple[FunctionNode, ...]


def epoch_runs(program: Program) -> list[EpochRun]:
    """Every loop over epochs round training, once, in file order; also one that calls Keras' `fit` each time."""
    found: dict[ast.AST, EpochRun] = {}
    for loop in program.facts.training_loops:
        if loop.epochs is not None and _is_over_epochs(program, loop.epochs, loop.node):
            found.setdefault(loop.epochs, _run(program, loop.epochs, loop.node))
    for fit in program.facts.fits:
        around = program.loops_around(fit.call) if fit.kind == "keras" else []
        for node in (loop for loop in around if says_epoch(program, loop)):
            found.setdefault(node, _run(program, node, None))
    return sorted(found.values(), key=lambda run: program.index.number[run.node])


def _run(program: Program, node: LoopNode, batches: LoopNode | FunctionNode | None) -> EpochRun:
    functions = {function for block in node.body for function in program.reach(block)}
    return EpochRun(node, batches, count_of(program, node), tuple(program.in_order(functions)))


def nodes_of(program: Program, run: EpochRun, *types: type[N]) -> Iterator[N]:
    """All nodes of these types that run in each epoch: in the loop's body and in the functions it calls."""
    for block in (*run.node.body, *run.functions):
        yield from program.within(block, *types)


def is_long(count: Any) -> bool:
    """At least five epochs, as far as the file says."""
    return is_number(count) and bool(count >= MIN_EPOCHS)


def few(count: Any, *, below: int = 3) -> bool:
    """Fewer than that, as far as the file says."""
    return is_number(count) and bool(count < below)


def trains_on_kept_features(program: Program, given: Iterable[ast.AST | None]) -> bool:
    """Does what is trained on come from features worked out before: by the names it has on its way here?"""
    parts = (part for node in given if node is not None for part in sources(program, node))
    return any(_MEMORY.search(program.written(part)) for part in parts if isinstance(part, ast.Name | ast.Attribute))


def _is_over_epochs(program: Program, loop: LoopNode, batches: ast.AST) -> bool:
    """Not `for fold in …`, which runs whole trainings, nor `for step in range(…)`, which has no pass over data inside."""
    if says_epoch(program, loop):
        return True
    if not isinstance(loop, ast.For) or loop is batches or (NOT_EPOCHS | STEPS) & set(target_words(loop)):
        return False
    if not isinstance(batches, ast.For):
        return True
    inner = unwrapped(program, batches.iter)
    if is_range(program, inner):
        return (isinstance(inner, ast.Call) and len(inner.args) == 3) or "len(" in program.text(inner)
    return not isinstance(inner, ast.Tuple | ast.List)


def callbacks_of(program: Program, call: ast.Call) -> list[ast.expr] | None:
    """Each callback as the expression that makes it; None if some of them cannot be told."""
    if any(keyword.arg is None for keyword in call.keywords):
        return None
    position = {"fit": 5, "fit_generator": 4}.get(program.method(call))
    given = program.argument(call, "callbacks", position)
    return [] if given is None else _elements(program, given, 0)


def _elements(program: Program, node: ast.AST | None, depth: int) -> list[ast.expr] | None:
    """What is in a list, through variables, sums and functions that make it; None where some of it cannot be told."""
    if not isinstance(node, ast.expr) or depth > _DEEPEST:
        return None
    stands_for = program.stands_for(node)
    left: list[ast.AST | None] = [value for _, value in program.added_to(program.written(node))]
    if stands_for is not None:
        left += stands_for
    elif isinstance(node, ast.List | ast.Tuple):
        left += node.elts
    elif isinstance(node, ast.BinOp):
        left += [node.left, node.right]
    elif not isinstance(node, ast.Constant):
        return [node] if isinstance(node, ast.Call) else None
    found = [_elements(program, part, depth + 1) for part in left]
    return None if None in found else [item for some in found if some is not None for item in some]


def one_does(program: Program, callbacks: list[ast.expr], known: frozenset[str], does: Does) -> bool | None:
    """Is one of them named in `known`, or does its class of this file do it? None if one is of another file and may."""
    answers = [_does_it(program, item, known, does) for item in callbacks]
    return True if True in answers else None if None in answers else False


def _does_it(program: Program, node: ast.expr, known: frozenset[str], does: Does) -> bool | None:
    if not isinstance(node, ast.Call):
        return None
    name = program.name(node)
    kind = name.rpartition(".")[2]
    if kind in known:
        return True
    owner = program.assigned_class(node)
    if owner is not None:
        bases = {base.rpartition(".")[2] for base in program.bases(owner)}
        parts: list[ast.AST] = [*owner.body, *(function for item in owner.body for function in program.reach(item))]
        return bool(bases & known) or any(does(program, call) for call in program.calls_in(parts))
    if kind == "LambdaCallback":
        given = [function for item in node.keywords if (function := program.callable_of(item.value)) is not None]
        return any(
            does(program, call) for call in program.calls_in([*given, *(part for item in given for part in program.reach(item))])
        )
    known_makers = ("tf.keras.", "lightning.", "tqdm.", "tensorflow_addons.")
    return False if name.startswith(known_makers) or _HARMLESS.search(kind) else None


@dataclass(frozen=True, eq=False)
class Feed:
    """`given` is what the fit trains on, `made_of` the calls that it comes from, the nearest first."""

    fit: Fit
    given: ast.expr
    made_of: tuple[ast.Call, ...]


def keras_feeds(program: Program) -> list[Feed]:
    """Every Keras `fit` with what it is given."""
    found = []
    for fit in program.facts.fits:
        given = (program.argument(fit.call, "x", 0) or program.argument(fit.call, "generator")) if fit.kind == "keras" else None
        if given is not None:
            found.append(Feed(fit, given, tuple(program.made_of(given))))
    return found


def item_functions(program: Program, owner: ast.ClassDef | None, depth: int = 0) -> Iterator[FunctionNode]:
    """What runs for a sample of this class: `__getitem__`, also of the data set that it takes its items from."""
    if owner is None or depth > 3:
        return
    methods = program.methods(owner)
    for name in ("__getitem__", "__iter__", "__data_generation", "_data_generation"):
        function = methods.get(name)
        if function is None:
            continue
        yield function
        for part in program.within(function, ast.Subscript):
            inner = program.assigned_class(part.value)
            if inner is not None and inner is not owner:
                yield from item_functions(program, inner, depth + 1)


def large_network(program: Program) -> ast.Call | None:
    """The call that makes a network known to be large: by its function, or by the name it is given."""
    calls = program.calls_named(name for name in program.calls_by_name if name.startswith(_MAKERS))
    kept = (call for call in calls if program.targets(call) and "Tokenizer" not in program.text(call.func))
    return next((call for call in kept if network_named(program, call)), None)


def network_named(program: Program, made: ast.Call) -> str:
    """`efficientnet` of `timm.create_model(CFG.name)`; empty where it is none of the large ones."""
    given = [program.value(item) for item in made.args[:2]] + [program.value(word.value) for word in made.keywords]
    for text in (program.text(made), *(item for item in given if isinstance(item, str))):
        found = _LARGE.search(text)
        if found:
            return found.group(0)
    return ""
