"""A file that does not load is replaced or dropped without a word.

An `except` that puts zeros, a blank `Image.new`, noise or another sample in place of what failed teaches the network that black
pictures have a label, and hides that half of a copy went missing. Skipping in silence makes the data set smaller than anybody
knows; scores are then compared between runs that did not see the same files. No time is saved by it, and days are lost in
finding out.

**Write instead.** Let it fail with the name, or find out beforehand:

    except OSError as error:
        raise RuntimeError(f"cannot read {path}") from error

Look through all files once before training (`unchoke check` does, and names every broken one), leave those out by name, and
write the list down. A collate function that drops `None` needs a list of what was dropped too.

**When this is fine.** Where the name of every file left out is kept or logged and nothing is put in its place; retries that
raise in the end; a missing file that means something (no mask: nothing there), if the code asks for it instead of catching an
error.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from unchoke.code.constant_values import UNKNOWN
from unchoke.code.facts.per_sample import is_random_number
from unchoke.code.facts.vocabulary import DECODERS, RASTER_OPENERS, words
from unchoke.code.node_index import FunctionNode, arguments, is_none
from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    code="blank-on-error",
    group="input",
    stage="decode",
    title="what fails to load is replaced or dropped in silence",
    kind="risk",
    gain="no speed: a data set that is what it is said to be",
    command="unchoke check",
)

_LOADS = (
    DECODERS
    | RASTER_OPENERS
    | {"numpy.load", "tf.io.read_file", "soundfile.read", "librosa.load", "torchaudio.load", "cv2.VideoCapture"}
)
_SAMPLE_LOADS = frozenset(
    {"open", "torch.load", "json.load", "pickle.load", "numpy.loadtxt", "scipy.io.loadmat", "numpy.fromfile"}
)
_LOADING = re.compile(r"^_*(?:load|read|open|decode|imread|fetch|get_?(?:image|img|item|sample)|__getitem__)", re.IGNORECASE)
_BLANKS = frozenset(
    {"zeros", "ones", "full", "empty", "zeros_like", "ones_like", "full_like", "rand", "randn", "rand_like", "randn_like", "eye"}
)
_NOISE = ("rand", "randn", "random", "uniform", "normal", "randint", "random_sample")
_BLANK_WORDS = frozenset({"blank", "dummy", "placeholder", "fallback", "empty", "black", "last", "previous", "prev", "default"})
_OTHER_ERRORS = frozenset(
    {"ImportError", "ModuleNotFoundError", "KeyboardInterrupt", "StopIteration", "Empty", "Full", "TimeoutError", "NameError",
     "ExpiredError", "StopAsyncIteration", "CalledProcessError", "OutOfRangeError"}
)  # fmt: skip
_RECORDS = frozenset(
    {"print", "append", "add", "write", "writelines", "warn", "warning", "info", "error", "exception", "debug", "log",
     "critical", "display", "secho", "echo", "put", "update", "writerow", "insert"}
)  # fmt: skip
_TELLS = _RECORDS - {"append", "add", "put", "update", "insert"}
_RETRIES = frozenset({"_", "attempt", "attempts", "retry", "retries", "try", "tries", "trial", "attempt_no"})


def check(program: Program) -> Iterator[Hit]:
    for handler in program.nodes(ast.ExceptHandler):
        attempt = program.parent(handler)
        if isinstance(attempt, ast.Try) and not _is_other_error(program, handler) and _loads(program, attempt.body, handler):
            yield from _judged(program, handler, handler.body, f"`except{_kind(program, handler)}`")
    for node in program.nodes(ast.If):
        if _asks_if_missing(program, node):
            yield from _judged(program, node, node.body, f"`if {program.text(node.test)}`")
    yield from _guarded(program)
    yield from _suppressed(program)


def _kind(program: Program, handler: ast.ExceptHandler) -> str:
    return f" {program.text(handler.type)}" if handler.type is not None else ""


def _judged(program: Program, node: ast.AST, body: Sequence[ast.stmt], where: str) -> Iterator[Hit]:
    """One hit if the body puts something in place, or skips with no record of the name."""
    if any(True for part in body for _ in program.within(part, ast.Raise)) or any(
        program.name(call) in ("sys.exit", "exit", "quit", "os._exit") for call in program.calls_in(body)
    ):
        return
    put = _put_in_place(program, node, body)
    if put:
        yield Hit(
            node,
            f"{where} puts {put} in place of what did not load",
            evidence={"in place": put},
            fix="raise an error that names the file, or look through all files beforehand and leave the broken ones out by name",
        )
        return
    skip = _skips(program, node, body)
    if skip and not _records(program, body) and not _callers_record(program, node, skip):
        yield Hit(
            node,
            f"{where} drops what did not load in silence (`{skip}`)",
            evidence={"by": skip},
            fix="keep or log the name of each file that is left out, or raise an error that names it",
        )


# Loading


def _is_other_error(program: Program, handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = [program.method(kind) for kind in kinds if kind is not None]
    return bool(names) and all(name in _OTHER_ERRORS for name in names)


def _loads(program: Program, body: Sequence[ast.AST], at: ast.AST) -> bool:
    """Does this code load a sample: an image or array by a name that is not fixed, itself or through a function of the file?"""
    per_sample = program.facts.in_per_sample(at) is not None
    calls = list(program.calls_in(body))
    if any(program.method(call) in ("backward", "fit", "load_state_dict", "load_weights") for call in calls):
        return False
    if any(_is_load(program, call, per_sample) for call in calls):
        return True
    if any(_reaches_load(program, call) for call in calls):
        return True
    return per_sample and any(
        isinstance(part.value, ast.Attribute | ast.Name) and _is_item(program, part)
        for item in body
        for part in program.within(item, ast.Subscript)
    )


def _is_load(program: Program, call: ast.Call, per_sample: bool) -> bool:
    name = program.name(call)
    if name in _LOADS or (per_sample and name in _SAMPLE_LOADS):
        return per_sample or _is_varying(program, call)
    if per_sample and program.function_of(call) is None:
        return bool(_LOADING.match(program.method(call))) and bool(call.args or call.keywords)
    return False


def _is_varying(program: Program, call: ast.Call) -> bool:
    """By a name that is not one fixed string."""
    return not call.args or (program.value(call.args[0]) is UNKNOWN and not isinstance(call.args[0], ast.Constant))


def _reaches_load(program: Program, call: ast.Call) -> bool:
    function = program.function_of(call)
    if function is None or function.name == "__init__" or (not _LOADING.match(function.name) and not call.args):
        return False
    parts = [function, *program.called_functions(function)]
    inner = list(program.calls_in(parts))
    if any(program.method(item) in ("backward", "fit") for item in inner):
        return False
    return any(program.name(item) in _LOADS and _is_varying(program, item) for item in inner)


def _is_item(program: Program, node: ast.Subscript) -> bool:
    """`self.dataset[index]`, `self.base[i]`: a sample of another data set."""
    name = program.written(node.value)
    return (
        name.startswith("self.")
        and bool({"dataset", "data", "base", "ds", "source"} & set(words(name)))
        and isinstance(node.ctx, ast.Load)
    )


def _asks_if_missing(program: Program, node: ast.If) -> bool:
    """`if image is None` after `image = cv2.imread(…)` or a function of the file that may give None."""
    tested = _tested_none(node.test, ast.Is)
    return tested is not None and _is_loaded(program, tested)


def _tested_none(test: ast.expr, kind: type[ast.cmpop]) -> ast.expr | None:
    if isinstance(test, ast.BoolOp):
        return next((found for part in test.values if (found := _tested_none(part, kind)) is not None), None)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and kind is ast.Is:
        return None
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], kind) or not is_none(test.comparators[0]):
        return None
    return test.left if isinstance(test.left, ast.Name | ast.Attribute) else None


def _is_loaded(program: Program, tested: ast.expr) -> bool:
    given = program.latest(tested)
    if given is None or program.is_before(tested, given):  # only assigned after the question
        given = next((item for item in program.assigned(program.written(tested), at=tested) if isinstance(item, ast.Call)), given)
    if not isinstance(given, ast.Call) and isinstance(given, ast.Constant | type(None)):
        return False
    calls = list(program.within(given, ast.Call)) if given is not None else []
    per_sample = program.facts.in_per_sample(tested) is not None
    named = (program.name(call) in ("cv2.imread", "cv2.imdecode", "osgeo.gdal.Open", "gdal.Open") for call in calls)
    return (
        any(named)
        or any(_gives_none(program, call) for call in calls)
        or (per_sample and any(_is_load(program, call, True) for call in calls))
    )


def _gives_none(program: Program, call: ast.Call) -> bool:
    """A function of the file that loads and can give None."""
    function = program.function_of(call)
    return function is not None and _reaches_load(program, call) and _returns_none(program, function)


def _returns_none(program: Program, function: FunctionNode) -> bool:
    return any(node.value is None or is_none(node.value) for node in program.within(function, ast.Return))


# What takes its place


def _put_in_place(program: Program, node: ast.AST, body: Sequence[ast.stmt]) -> str:
    """In words, what is put in place of the sample; empty if nothing is."""
    per_sample = program.facts.in_per_sample(node)
    for value in _values(program, body):
        blank = _blank(program, value)
        if blank:
            return blank
        if per_sample is not None and _is_other_sample(program, value):
            return "another sample"
    return ""


def _values(program: Program, body: Sequence[ast.stmt]) -> Iterator[ast.expr]:
    """What a body assigns, returns, yields or appends."""
    for part in body:
        for node in program.within(part, ast.Assign, ast.AnnAssign, ast.Return, ast.Yield, ast.Call):
            if isinstance(node, ast.Call):
                if program.method(node) in ("append", "insert", "add") and node.args:
                    yield node.args[-1]
            elif isinstance(node, ast.Assign | ast.AnnAssign | ast.Return | ast.Yield) and node.value is not None:
                yield node.value


def _blank(program: Program, value: ast.expr) -> str:
    for call in program.within(value, ast.Call):
        name, method = program.name(call), program.method(call)
        if name == "PIL.Image.new" or (method == "new" and program.written(program.receiver(call)).endswith("Image")):
            return f"a blank `{program.text(call.func)}`"
        if (method in _BLANKS and name.startswith(("numpy.", "torch.", "tf.", "jax."))) or name == "PIL.Image.effect_noise":
            return f"`{program.text(call.func)}`"
        if name.startswith(("numpy.random.", "tf.random.")) and method in _NOISE:
            return f"`{program.text(call.func)}`" if not _is_index(program, call) else ""
    name = program.written(value)
    if name and _BLANK_WORDS & set(words(name.rpartition(".")[2])):
        return f"`{name}`"
    given = program.latest(value) if isinstance(value, ast.Name | ast.Attribute) else None
    return _blank(program, given) if isinstance(given, ast.Call) else ""


def _is_index(program: Program, call: ast.Call) -> bool:
    """A number drawn below the length of something: an index, not pixels."""
    return any(program.name(part) == "len" for part in program.within(call, ast.Call))


def _is_other_sample(program: Program, value: ast.expr) -> bool:
    """`self[…]`, `self.__getitem__(…)`, a random index, the next index."""
    if any(isinstance(node.value, ast.Name) and node.value.id == "self" for node in program.within(value, ast.Subscript)):
        return True
    loads = any(_is_load(program, call, True) for call in program.within(value, ast.Call))
    if any((loads or _is_item(program, node)) and _is_first(program, node) for node in program.within(value, ast.Subscript)):
        return True
    for call in program.within(value, ast.Call):
        if program.method(call) in ("__getitem__", "_random_sample", "random_sample", "get_random"):
            return True
        names = [part.id for part in program.within(call, ast.Name)]
        if is_random_number(program, call) and ("self" in names or "len" in names):
            return True
    modulo = (node for node in program.within(value, ast.BinOp) if isinstance(node.op, ast.Mod))
    return any("len(" in program.text(node.right) for node in modulo)


def _is_first(program: Program, node: ast.Subscript) -> bool:
    """`self.paths[0]`: one that always loads."""
    fixed = isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int)
    return fixed and program.written(node.value).startswith("self.")


# What is skipped


def _skips(program: Program, node: ast.AST, body: Sequence[ast.stmt]) -> str:
    """`continue`, `pass`, `return None`: what is left undone; empty if the body does something else."""
    last = body[-1]
    if isinstance(last, ast.Continue | ast.Pass) and _is_retry(program, node):
        return ""
    if isinstance(last, ast.Continue):
        return "continue"
    if isinstance(last, ast.Pass):
        return "pass" if len(body) == 1 else ""
    if isinstance(last, ast.Return):
        return _empty_return(last)
    if all(_only_counts_or_tells(program, statement) for statement in body) and _falls_through(program, node):
        return program.text(last)
    if isinstance(last, ast.Assign) and is_none(last.value):
        return "" if _asked_later(program, node, last.targets[0]) else program.text(last)
    return ""


def _only_counts_or_tells(program: Program, statement: ast.stmt) -> bool:
    """`failed += 1`, `print("bad file")`."""
    if isinstance(statement, ast.AugAssign):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and program.method(statement.value) in _TELLS


def _falls_through(program: Program, node: ast.AST) -> bool:
    """Is what comes next the next round of a loop, or the end of the function?"""
    attempt = program.parent(node) if isinstance(node, ast.ExceptHandler) else node
    block = program.parent(attempt) if attempt is not None else None
    ends = isinstance(block, ast.For | ast.AsyncFor | ast.FunctionDef) and block.body[-1] is attempt
    return ends and (not isinstance(block, ast.For) or not _is_retry(program, node))


def _empty_return(node: ast.Return) -> str:
    values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
    first = values[0] if values else None
    if first is None or is_none(first):
        return "return None"
    return "return []" if isinstance(first, ast.List) and not first.elts and len(values) == 1 else ""


def _is_retry(program: Program, node: ast.AST) -> bool:
    loops = program.loops_around(node)
    if not loops or not isinstance(loops[0], ast.For):
        return False
    return any(
        _RETRIES & set(words(part.id)) or part.id == "_" for part in ast.walk(loops[0].target) if isinstance(part, ast.Name)
    )


def _asked_later(program: Program, node: ast.AST, target: ast.expr) -> bool:
    """`image = None` here, and `if image is None` further down, which is judged by itself."""
    function = program.enclosing_function(node)
    for other in program.nodes(ast.If):
        if program.enclosing_function(other) is function and program.is_before(node, other):
            tested = _tested_none(other.test, ast.Is) or _tested_none(other.test, ast.IsNot)
            if tested is not None and program.written(tested) == program.written(target):
                return True
    return False


def _records(program: Program, body: Sequence[ast.stmt]) -> bool:
    """Is a name, or the error, printed, logged or kept?"""
    for part in body:
        for call in program.within(part, ast.Call):
            told = program.method(call) in _RECORDS or "log" in words(program.method(call))
            given = arguments(call)
            if told and any(
                isinstance(inner, ast.Name | ast.Attribute)
                for item in given
                for inner in program.within(item, ast.Name, ast.Attribute)
            ):
                return True
        for node in program.within(part, ast.Assign):
            if any(isinstance(target, ast.Subscript) for target in node.targets):
                return True
    return False


def _callers_record(program: Program, node: ast.AST, skip: str) -> bool:
    """`return None` whose callers ask for it and raise or record."""
    function = program.enclosing_function(node)
    if function is None or not skip.startswith("return"):
        return False
    for call in program.callers(function):
        if _has_other_way(program, call):
            return True
        for name in program.targets(call):
            for other in program.nodes(ast.If):
                about = any(part.id == name for part in program.within(other.test, ast.Name))
                if about and program.enclosing_function(other) is program.enclosing_function(call) and _answers(program, other):
                    return True
    return False


def _has_other_way(program: Program, call: ast.Call) -> bool:
    """`pixels if pixels is not None else other(data)`, `load(path) or other(path)`."""
    names = set(program.targets(call))
    scope = program.enclosing_function(call)
    for node in program.nodes(ast.IfExp, ast.BoolOp):
        if program.enclosing_function(node) is not scope:
            continue
        others = [node.orelse] if isinstance(node, ast.IfExp) else node.values[1:] if isinstance(node.op, ast.Or) else []
        asked = node.test if isinstance(node, ast.IfExp) else node.values[0]
        about = program.index.holds(asked, call) or any(part.id in names for part in program.within(asked, ast.Name))
        if about and any(isinstance(other, ast.Call) and not _blank(program, other) for other in others):
            return True
    return False


def _answers(program: Program, node: ast.If) -> bool:
    """It raises, records, or goes another way about loading it."""
    body = [*node.body, *node.orelse]
    if any(True for part in body for _ in program.within(part, ast.Raise)):
        return True
    return _records_failure(program, node) or any(
        _loads(program, [part], node) for part in node.body if _tested_none(node.test, ast.Is)
    )


def _records_failure(program: Program, node: ast.If) -> bool:
    """The branch taken for None records; keeping what did load in the other branch does not."""
    positive = isinstance(node.test, ast.Name) or _tested_none(node.test, ast.IsNot) is not None
    return _records(program, node.orelse if positive else node.body)


# Guards and suppress


def _guarded(program: Program) -> Iterator[Hit]:
    """`if image is not None: images.append(image)` in a loop over files, with nothing else said."""
    for node in program.nodes(ast.If):
        tested = _tested_none(node.test, ast.IsNot)
        if tested is None or node.orelse or not program.loops_around(node) or not isinstance(program.latest(tested), ast.Call):
            continue
        keeps = any(program.method(call) == "append" for call in program.calls_in(node.body))
        parent = program.parent(node)
        if keeps and _is_loaded(program, tested) and isinstance(parent, ast.For) and parent.body[-1] is node:
            yield Hit(
                node,
                f"`if {program.text(node.test)}` drops what did not load in silence",
                evidence={"by": program.text(node.test)},
                fix="add an `else` that keeps or logs the name of each file that is left out, or raise an error that names it",
            )


def _suppressed(program: Program) -> Iterator[Hit]:
    """`with suppress(OSError): … load …`, and tf.data's `ignore_errors`."""
    for node in program.nodes(ast.With):
        hides = any(program.name(item.context_expr) == "contextlib.suppress" for item in node.items)
        if hides and _loads(program, node.body, node):
            yield _silent(node, program.text(node.items[0].context_expr))
    for call in program.nodes(ast.Call):
        if program.method(call) == "ignore_errors" and not program.value(program.argument(call, "log_warning", 0)):
            yield _silent(call, "ignore_errors")


def _silent(node: ast.AST, by: str) -> Hit:
    return Hit(
        node,
        f"`{by}` drops what did not load in silence",
        evidence={"by": by},
        fix="let it raise, or look through all files beforehand and leave the broken ones out by name",
    )
