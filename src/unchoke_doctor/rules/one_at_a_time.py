"""Does a network see one sample per call, in a loop over many?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke_doctor.code.data import DRAWS, loaders, sample_functions
from unchoke_doctor.code.program import COMPREHENSIONS, FUNCTIONS, LOOPS, Program
from unchoke_doctor.code.trace import given, number, origins, returned, value
from unchoke_doctor.code.training import handful, torch_passes, trains_in
from unchoke_doctor.rules import Case, Hit

_MANY = 1_000
_STREAM = re.compile(r"VideoCapture|\.read\(\)|isOpened|waitKey|input\(")
_KEEPS = frozenset({"to", "cuda", "float", "half", "astype", "from_numpy", "Variable", "preprocess_input", "convert_to_tensor", "tensor", "cast", "array", "asarray", "double", "contiguous", "repeat", "stack"})
_NOT_NETWORKS = re.compile(r"sklearn|xgboost|lightgbm|catboost|scaler|encoder_?label|svm|knn|forest|clf\b|kmeans|pca\b|YOLO", re.IGNORECASE)


def check(case: Case) -> Iterator[Hit]:
    program = case.program
    done: set[ast.AST] = set()
    passes = [*torch_passes(program), *(call for call in program.calls_to("predict", "predict_on_batch", "predict_proba") if _is_predict(program, call)), *_keras_passes(program)]
    for call in sorted(set(passes), key=program.order.__getitem__):
        loop = _loop_over_samples(program, call) if program.is_own(call) and call.args and _is_single(program, call.args[0]) else None
        if loop is not None and loop not in done:
            done.add(loop)
            kind, basis, shown = case.weigh()
            said = f"`{program.text(call)}` runs the network on one sample at a time, {_where(program, loop)}"
            fix = "collect a batch (for example 32 samples, `torch.stack` or `np.stack`) and call the network once per batch"
            yield Hit(call, said, fix, kind, basis, {**shown, "batch": 1, "loop_line": program.place(loop).line})
    yield from _loaders_of_one(case)


def _where(program: Program, loop: ast.AST) -> str:
    if isinstance(loop, FUNCTIONS):
        return f"in `{getattr(loop, 'name', 'lambda')}`, which runs for each sample"
    over = loop.generators[0].iter if isinstance(loop, COMPREHENSIONS) else getattr(loop, "iter", loop)
    return f"in a loop over `{program.text(over, 40)}`"


def _loaders_of_one(case: Case) -> Iterator[Hit]:
    """Loaders for evaluation with `batch_size=1`, of torch and Keras. A choke where many images are known to pass."""
    program = case.program
    made: list[ast.Call] = [loader.call for loader in loaders(program) if loader.batch == 1 or "batch_size" not in {word.arg for word in loader.call.keywords} and len(loader.call.args) == 1 and not any(word.arg in (None, "batch_sampler") for word in loader.call.keywords)]
    made += [call for call in program.calls_to("flow_from_directory", "flow_from_dataframe") if value(program, given(program, call, "batch_size")) == 1]
    uses = [(loop.iter, not trains_in(program, loop) and any(program.contains(loop, one) for one in torch_passes(program))) for loop in program.loops if isinstance(loop, ast.For)]
    uses += [(call.args[0], True) for call in program.calls_to("predict", "evaluate", "predict_generator", "evaluate_generator") if call.args]
    for call in made:
        used = [expr for expr, evaluates in uses if evaluates and call in origins(program, expr)]
        if not used or not program.is_own(call):
            continue
        many = case.images is not None and case.images >= _MANY
        kind, basis, shown = case.weigh("choke" if many else "note")
        said = f"`{program.text(call, 50)}` gives evaluation one sample per step"
        yield Hit(call, said, "raise `batch_size` (evaluation needs no gradients and takes larger batches than training)", kind, basis, {**shown, "batch": 1})


def _is_predict(program: Program, call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute) or program.target(call) is not None:
        return False
    makers = [program.name(end) for end in origins(program, call.func.value) if isinstance(end, ast.Call)]
    return not any(_NOT_NETWORKS.search(text) for text in (*makers, program.text(call.func.value)))


def _keras_passes(program: Program) -> Iterator[ast.Call]:
    """`model(x)` and `model(x, training=False)` of Keras."""
    if program.imports_any("tensorflow", "keras"):
        names = {ast.dump(call.func.value) for call in program.calls_to("predict", "compile", "summary") if isinstance(call.func, ast.Attribute)}
        yield from (call for call in program.calls if isinstance(call.func, ast.Name) and ast.dump(call.func) in names)


def _is_single(program: Program, expr: ast.AST, deepest: int = 6) -> bool:
    """Is this a batch made of one sample: `x[None]`, `unsqueeze(0)`, `expand_dims(x, 0)`, `reshape(1, …)`, `array([x])`?"""
    if not deepest:
        return False
    match expr:
        case ast.Name():
            some = [binding.value for binding in program.bound(expr) if binding.how == "value" and binding.value is not None]
            return bool(some) and any(_is_single(program, one, deepest - 1) for one in some)
        case ast.BinOp():
            return _is_single(program, expr.left, deepest - 1)
        case ast.Subscript():
            first = expr.slice.elts[0] if isinstance(expr.slice, ast.Tuple) and expr.slice.elts else expr.slice
            return (isinstance(first, ast.Constant) and first.value is None) or program.name(first).endswith("newaxis") or _is_step_of_one(program, first)
        case ast.Call():
            last = program.name(expr).rpartition(".")[2]
            if last in ("expand_dims", "unsqueeze", "unsqueeze_"):
                axis = given(program, expr, "axis", 0 if isinstance(expr.func, ast.Attribute) and last != "expand_dims" else 1) or given(program, expr, "dim") or (expr.args[-1] if expr.args else None)
                return number(program, axis) == 0
            if last in ("reshape", "view") and expr.args:
                shape = expr.args[0].elts if isinstance(expr.args[0], ast.Tuple | ast.List) else expr.args
                return bool(shape) and number(program, shape[0]) == 1
            if last in ("array", "asarray", "stack", "tensor", "constant", "convert_to_tensor") and expr.args and isinstance(expr.args[0], ast.List):
                return len(expr.args[0].elts) == 1 and not isinstance(expr.args[0].elts[0], ast.Starred)
            if (target := program.target(expr)) is not None and not isinstance(target, ast.ClassDef):
                return any(_is_single(program, one, deepest - 1) for one in returned(program, target))
            inner = [*expr.args[:1], *([expr.func.value] if isinstance(expr.func, ast.Attribute) else [])]
            return last in _KEEPS and any(_is_single(program, part, deepest - 1) for part in inner)
    return False


def _is_step_of_one(program: Program, part: ast.AST) -> bool:
    """`x[i:i + 1]`"""
    if not isinstance(part, ast.Slice) or part.lower is None or not isinstance(part.upper, ast.BinOp):
        return False
    return ast.dump(part.upper.left) == ast.dump(part.lower) and number(program, part.upper.right) == 1


def _loop_over_samples(program: Program, node: ast.AST, deepest: int = 3) -> ast.AST | None:
    """The loop over many samples around a pass, through the functions that hold it; None for handfuls, figures, videos, training."""
    while (loop := program.loop(node)) is not None:
        body = [program.name(call).rpartition(".")[2] for call in program.calls_in(loop)]
        if trains_in(program, loop) or _STREAM.search(program.text(loop, 20_000)) or (isinstance(loop, ast.While) and not loop.orelse and deepest < 3) or DRAWS & set(body):
            return None
        if not handful(program, loop) and isinstance(loop, (*LOOPS, *COMPREHENSIONS)):
            return loop
        node = loop
    function = program.function(node)
    if function is None or not deepest:
        return None
    if function in sample_functions(program):
        return function
    found = [_loop_over_samples(program, call, deepest - 1) for call in program.callers(function)]
    handed = [call for call in program.calls_to("apply", "progress_apply", "map") for part in call.args[:1] if program.definition(part) is function]
    return next((one for one in (*found, *handed) if one is not None), None)
