"""Does a network see one sample per call, in a loop over many?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke_doctor.code.data import DRAWS, loaders, sample_functions
from unchoke_doctor.code.program import COMPREHENSIONS, FUNCTIONS, LOOPS, Program
from unchoke_doctor.code.trace import MISSING, argument, given, number, origins, returned, value
from unchoke_doctor.code.training import handful, torch_passes, trains_in
from unchoke_doctor.rules import Case, Hit

_MANY = 1_000
_STREAM = re.compile(r"VideoCapture\(\s*(?:-?\d|cam)|waitKey|\binput\(|sock|stream|queue", re.IGNORECASE)
_PREDICTS = ("predict", "predict_on_batch", "predict_proba")
_KEEPS = frozenset({
    "to", "cuda", "float", "half", "astype", "from_numpy", "Variable", "preprocess_input", "convert_to_tensor", "tensor",
    "cast", "array", "asarray", "double", "contiguous", "repeat", "stack",
})  # fmt: skip
_BATCHES = ("array", "asarray", "stack", "tensor", "constant", "convert_to_tensor")
_NOT_NETWORKS = re.compile(
    r"sklearn|xgboost|lightgbm|catboost|scaler|encoder_?label|svm|knn|forest|clf\b|kmeans|pca\b|YOLO", re.IGNORECASE
)


def check(case: Case) -> Iterator[Hit]:
    program, done = case.program, set[ast.AST]()
    passes = {*torch_passes(program), *_keras_passes(program)}
    for call in sorted(passes, key=program.order.__getitem__):
        if not (program.is_own(call) and call.args and _is_single(program, call.args[0])):
            continue
        loop = loop_over_samples(program, call)
        if loop is not None and loop not in done:
            done.add(loop)
            if isinstance(loop, FUNCTIONS):
                where = f"in `{getattr(loop, 'name', 'lambda')}`, which runs for each sample"
            else:
                over = loop.generators[0].iter if isinstance(loop, COMPREHENSIONS) else getattr(loop, "iter", loop)
                where = f"in a loop over `{program.text(over, 40)}`"
            said = f"`{program.text(call)}` runs the network on one sample at a time, {where}"
            fix = "collect a batch (for example 32 samples, `torch.stack` or `np.stack`) and call the network once per batch"
            yield case.hit([call], said, fix, batch=1, loop_line=program.place(loop).line)
    yield from _loaders_of_one(case)


def _loaders_of_one(case: Case) -> Iterator[Hit]:
    """Loaders for evaluation with `batch_size=1`, of torch and Keras; a note where few images are known to pass."""
    program = case.program
    words = (("batch_size", 1), ("batch_sampler", None))
    bare = [
        one.call for one in loaders(program) if one.batch == 1 or all(argument(program, one.call, *w) == MISSING for w in words)
    ]
    made = dict.fromkeys([*bare, *(call for call in program.calls if value(program, given(program, call, "batch_size")) == 1)])
    loops = dict.fromkeys(part for call in torch_passes(program) for part in program.above(call) if isinstance(part, ast.For))
    used = [loop.iter for loop in loops if not trains_in(program, loop)]
    fits = program.calls_to("predict", "evaluate", "predict_generator", "evaluate_generator", "fit", "fit_generator")
    read = {end for expr in (*used, *(call.args[0] for call in fits if call.args)) for end in origins(program, expr)}
    for call in made:
        if call in read and program.is_own(call):
            many = case.outputs.images is None or case.outputs.images >= _MANY
            said = f"`{program.text(call, 50)}` gives the network one sample per step"
            fix = "raise `batch_size`: 32 in training, more in evaluation, which needs no gradients"
            yield case.hit([call], said, fix, "choke" if many else "note", batch=1)


def _keras_passes(program: Program) -> Iterator[ast.Call]:
    """`model.predict(x)`, and `model(x)` of Keras; not of libraries whose models take one row as quickly as many."""
    named = program.calls_to("predict", "compile", "summary") if program.imports_any("tensorflow", "keras") else []
    names = {
        call.func.value.id for call in named if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)
    }
    yield from (call for call in program.calls if isinstance(call.func, ast.Name) and call.func.id in names)
    for call in program.calls_to(*_PREDICTS):
        if isinstance(call.func, ast.Attribute) and program.target(call) is None:
            makers = [program.name(end) for end in origins(program, call.func.value) if isinstance(end, ast.Call)]
            if not any(_NOT_NETWORKS.search(text) for text in (*makers, program.text(call.func.value))):
                yield call


def _is_single(program: Program, expr: ast.AST, deepest: int = 6) -> bool:
    """Is this a batch made of one sample: `x[None]`, `unsqueeze(0)`, `expand_dims(x, 0)`, `reshape(1, …)`, `array([x])`?"""
    parts: list[ast.expr] = []
    match expr if deepest else None:
        case ast.Name() as name:
            parts = [binding.value for binding in program.bound(name) if binding.how == "value" and binding.value is not None]
        case ast.BinOp(left=left):
            parts = [left]
        case ast.Subscript(slice=ast.Tuple(elts=[first, *_]) | first):
            is_none = isinstance(first, ast.Constant) and first.value is None
            return is_none or program.last(first) == "newaxis" or _is_step_of_one(program, first)
        case ast.Call() as call:
            last, receiver = program.last(call), call.func.value if isinstance(call.func, ast.Attribute) else None
            if last in ("expand_dims", "unsqueeze", "unsqueeze_"):
                axis = given(program, call, "axis") or given(program, call, "dim") or (call.args[-1] if call.args else None)
                return number(program, axis) == 0
            if last in ("zeros", "ones", "empty", "ndarray") and (made := given(program, call, "shape", 0)) is not None:
                return isinstance(made, ast.Tuple | ast.List) and len(made.elts) > 2 and number(program, made.elts[0]) == 1
            if last in ("reshape", "view") and call.args:
                shape = call.args[0].elts if isinstance(call.args[0], ast.Tuple | ast.List) else call.args
                return bool(shape) and number(program, shape[0]) == 1
            if last in _BATCHES and call.args and isinstance(call.args[0], ast.List):
                return len(call.args[0].elts) == 1 and not isinstance(call.args[0].elts[0], ast.Starred)
            if (target := program.target(call)) is not None and not isinstance(target, ast.ClassDef):
                parts = returned(program, target)
            elif last in _KEEPS:
                parts = [*call.args[:1], *([receiver] if receiver is not None else [])]
    return any(_is_single(program, part, deepest - 1) for part in parts)


def _is_step_of_one(program: Program, part: ast.AST) -> bool:
    """`x[i:i + 1]`"""
    if not isinstance(part, ast.Slice) or part.lower is None or not isinstance(part.upper, ast.BinOp):
        return False
    return program.text(part.upper.left) == program.text(part.lower) and number(program, part.upper.right) == 1


def loop_over_samples(program: Program, node: ast.AST, deepest: int = 3) -> ast.AST | None:
    """The loop over many samples around a pass, through functions; None for handfuls, figures, videos and training."""
    while (loop := program.loop(node)) is not None:
        polls = isinstance(loop, ast.While) and deepest < 3  # a program that waits for input calls it
        draws = any(program.last(call) in DRAWS for call in program.calls_in(loop))
        around = program.function(loop) or loop
        text = program.text(around, 20_000) if isinstance(around, FUNCTIONS) else program.cell(loop).python
        if polls or draws or trains_in(program, loop) or (isinstance(loop, ast.While) and _STREAM.search(text)):
            return None
        if isinstance(loop, (*LOOPS, *COMPREHENSIONS)) and not handful(program, loop):
            return loop
        node = loop
    function = program.function(node)
    if function is None or not deepest:
        return None
    if function in sample_functions(program):
        return function
    found = [loop_over_samples(program, call, deepest - 1) for call in program.callers(function)]
    handed = program.calls_to("apply", "progress_apply", "map")
    found += [call for call in handed if call.args and program.definition(call.args[0]) is function]
    return next((one for one in found if one is not None), None)
