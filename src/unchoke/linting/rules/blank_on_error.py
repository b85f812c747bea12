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
error. It is a risk in a data set's code, where an `except` for every error drops what did not load or puts something in its place
without a word, and where a plain `except:` passes over whatever goes wrong in a loop that writes files. An `except` for some
errors, one that hands the error on, or after which another way is tried is a nit, and so are a test for None and everything in a
library.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from unchoke.code.constant_values import UNKNOWN
from unchoke.code.facts.vocabulary import DECODERS, RASTER_OPENERS, words
from unchoke.code.node_index import arguments, is_none, names_in
from unchoke.code.program import Program
from unchoke.linting.questions import calls_run_by, tests_round
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
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
     "ExpiredError", "StopAsyncIteration", "BadZipFile", "CalledProcessError", "OutOfRangeError"}
)  # fmt: skip
_RECORDS = frozenset(
    {"print", "append", "add", "write", "writelines", "warn", "warning", "info", "error", "exception", "debug", "log",
     "critical", "display", "secho", "echo", "put", "update", "writerow", "insert"}
)  # fmt: skip
_GIVE_NONE = ("cv2.imread", "cv2.imdecode", "osgeo.gdal.Open", "gdal.Open")
_NONE_TOO = re.compile(r"None|Optional")
_WRITES = frozenset(
    {"save", "imwrite", "imsave", "write", "savefig", "savez", "to_csv", "dump", "copy", "copyfile", "copy2", "move"}
)
_TRAINS = ("backward", "fit", "load_state_dict", "load_weights")
_TELLS = _RECORDS - {"append", "add", "put", "update", "insert"}
_RETRIES = frozenset({"_", "attempt", "attempts", "retry", "retries", "try", "tries", "trial", "attempt_no"})


def check(program: Program) -> Iterator[Hit]:
    for handler in program.nodes(ast.ExceptHandler):
        attempt = program.parent(handler)
        if isinstance(attempt, ast.Try) and not _is_other_error(program, handler) and _loads(program, attempt.body, handler):
            kind = f" {program.text(handler.type)}" if handler.type is not None else ""
            meant = _is_meant(program, handler, attempt) or not _leaves_holes(program, handler, attempt)
            for hit in _judged(program, handler, handler.body, f"`except{kind}`"):
                yield replace(hit, kind="nit") if meant else hit
    for node in program.nodes(ast.If):
        if _is_loaded(program, _tested_none(node.test, ast.Is)):
            hits = _judged(program, node, node.body, f"`if {program.text(node.test)}`")
            yield from (replace(hit, kind="nit") for hit in hits)


def _judged(program: Program, node: ast.AST, body: Sequence[ast.stmt], where: str) -> Iterator[Hit]:
    """One hit if the body puts something in place, or skips with no record of the name."""
    if _raises(program, body):
        return
    put, skip = _put_in_place(program, body), _skips(program, node, body)
    if put:
        yield Hit(
            node,
            f"{where} puts {put} in place of what did not load",
            evidence={"in place": put},
            fix="raise an error that names the file, or look through all files beforehand and leave the broken ones out by name",
            kind=None if program.facts.in_per_sample(node) is not None and not _records(program, body) else "nit",
        )
    elif skip and not _records(program, body) and not (skip.startswith("return") and _callers_record(program, node)):
        yield Hit(
            node,
            f"{where} drops what did not load in silence (`{skip}`)",
            evidence={"by": skip},
            fix="keep or log the name of each file that is left out, or raise an error that names it",
        )


def _is_meant(program: Program, handler: ast.ExceptHandler, attempt: ast.Try) -> bool:
    """One error that is known to come, one that is handed on, or another way is tried below."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    expected = all(kind is not None and program.method(kind) not in ("Exception", "BaseException") for kind in kinds)
    number, function = program.index.number, program.enclosing_function(handler)
    later = (other for other in program.nodes(ast.Try) if number[other] > program.index.stop(attempt))
    again = function is not None and any(program.index.holds(function, other) for other in later)
    return expected or (again and isinstance(handler.body[-1], ast.Pass)) or handler.name in names_in(*handler.body)


def _leaves_holes(program: Program, handler: ast.ExceptHandler, attempt: ast.Try) -> bool:
    """In a data set's code; or in a loop whatever goes wrong is passed over, and what is written has a hole nobody knows of.

    Where `pass` goes on with what there was before, or with the next way, nothing is left out.
    """
    tried = any(True for part in attempt.body for _ in program.within(part, ast.Return, ast.Break))
    if isinstance(handler.body[-1], ast.Pass) and (tried or not program.loops_around(handler)):
        return False
    if program.facts.in_per_sample(handler) is not None:
        return True
    writes = any(program.method(call) in _WRITES for call in calls_run_by(program, *attempt.body))
    return writes and handler.type is None and bool(program.loops_around(handler))


def _raises(program: Program, body: Sequence[ast.stmt]) -> bool:
    return any(True for part in body for _ in program.within(part, ast.Raise))


# Loading


def _is_other_error(program: Program, handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return all(program.method(kind) in _OTHER_ERRORS for kind in kinds)


def _loads(program: Program, body: Sequence[ast.AST], at: ast.AST) -> bool:
    """Does this code load a sample: an image or array by a name that is not fixed, itself or through a function of the file?"""
    per_sample = program.facts.in_per_sample(at) is not None
    calls = list(program.calls_in(body))
    inner = [item for call in calls for item in _calls_inside(program, call)]
    if any(program.method(call) in _TRAINS for call in (*calls, *inner)):
        return False
    return any(_is_load(program, call, per_sample) for call in calls) or any(_is_load(program, call, False) for call in inner)


def _is_load(program: Program, call: ast.Call, per_sample: bool) -> bool:
    """In per-sample code also by the name of a function that is not here; elsewhere only by a name that is no fixed string."""
    name = program.name(call)
    if not per_sample:
        return name in _LOADS and (not call.args or program.value(call.args[0]) is UNKNOWN)
    unseen = program.function_of(call) is None and bool(arguments(call))
    return name in _LOADS | _SAMPLE_LOADS or (unseen and _LOADING.match(program.method(call)) is not None)


def _calls_inside(program: Program, call: ast.Call) -> Iterator[ast.Call]:
    """What a function of the file that may load runs when it is called."""
    function = program.function_of(call)
    if function is not None and function.name != "__init__" and (call.args or _LOADING.match(function.name)):
        yield from program.calls_in([function, *program.called_functions(function)])


def _tested_none(test: ast.expr, kind: type[ast.cmpop]) -> ast.expr | None:
    """`image` in `image is None or image.size == 0`."""
    if isinstance(test, ast.BoolOp):
        return next((found for part in test.values if (found := _tested_none(part, kind)) is not None), None)
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], kind) and is_none(test.comparators[0]):
        return test.left
    return None


def _is_loaded(program: Program, tested: ast.expr | None) -> bool:
    """Was it given what `cv2.imread` read, or in per-sample code any other load?"""
    given = program.latest(tested)
    if tested is None or given is None:
        return False
    per_sample = program.facts.in_per_sample(tested) is not None
    calls = list(program.within(given, ast.Call))
    return any(program.name(call) in _GIVE_NONE or (per_sample and _is_load(program, call, True)) for call in calls)


# What takes its place


def _put_in_place(program: Program, body: Sequence[ast.stmt]) -> str:
    """In words, what is put in place of the sample; empty if nothing is."""
    for value in _values(program, body):
        if (found := _blank(program, value)) and not _is_given_anyway(program, body, value):
            return found
    return ""


def _is_given_anyway(program: Program, body: Sequence[ast.stmt], value: ast.expr) -> bool:
    """Does the same function make the same blank where all goes well too? Then nothing hangs on it."""
    function = program.enclosing_function(body[0])
    blanks = {program.text(call) for call in program.within(value, ast.Call)}
    others = program.within(function, ast.Call) if function is not None else ()
    plain = (call for call in others if not program.index.holds_any(body, call) and not tests_round(program, call))
    return any(program.text(call) in blanks and program.method(call) in _BLANKS for call in plain)


def _values(program: Program, body: Sequence[ast.stmt]) -> Iterator[ast.expr]:
    """What a body assigns, returns, yields or appends."""
    for part in body:
        for node in program.within(part, ast.Assign, ast.Return, ast.Yield, ast.Call):
            if isinstance(node, ast.Assign | ast.Return | ast.Yield):
                yield from [node.value] if node.value is not None else []
            elif program.method(node) in ("append", "insert", "add"):
                yield from node.args[-1:] if isinstance(node, ast.Call) else []


def _blank(program: Program, value: ast.expr) -> str:
    for call in program.within(value, ast.Call):
        name, method = program.name(call), program.method(call)
        shown = f"`{program.text(call.func)}`"
        if name == "PIL.Image.new":
            return f"a blank {shown}"
        if (method in _BLANKS and name.startswith(("numpy.", "torch.", "tf.", "jax."))) or name == "PIL.Image.effect_noise":
            return shown
        if name.startswith(("numpy.random.", "tf.random.")) and method in _NOISE:
            return "" if "len(" in program.text(call) else shown  # below the length of something: an index, not pixels
    name = program.written(value)
    return f"`{name}`" if _BLANK_WORDS & set(words(name.rpartition(".")[2])) else ""


# What is skipped


def _skips(program: Program, node: ast.AST, body: Sequence[ast.stmt]) -> str:
    """`continue`, `pass`, `return None`: what is left undone; empty if the body does something else."""
    last = body[-1]
    if isinstance(last, ast.Return):
        function = program.enclosing_function(node)
        annotated = program.text(function.returns) if function is not None and function.returns is not None else ""
        return "" if _NONE_TOO.search(annotated) else _empty_return(last)
    if _is_retry(program, node):
        return ""
    if isinstance(last, ast.Continue | ast.Pass):
        return program.text(last)
    told = [item.value for item in body if isinstance(item, ast.Expr)]  # `print("bad file")`, beside `failed += 1`
    only = all(isinstance(item, ast.Expr | ast.AugAssign) for item in body)
    return program.text(last) if only and all(program.method(call) in _TELLS for call in told) else ""


def _empty_return(node: ast.Return) -> str:
    first = node.value.elts[0] if isinstance(node.value, ast.Tuple) and node.value.elts else node.value
    if first is None or is_none(first):
        return "return None"
    return "return []" if isinstance(first, ast.List) and not first.elts else ""


def _is_retry(program: Program, node: ast.AST) -> bool:
    """`for attempt in range(3):`."""
    targets = [loop.target for loop in program.loops_around(node)[:1] if isinstance(loop, ast.For)]
    return any(name == "_" or _RETRIES & set(words(name)) for target in targets for name in names_in(target))


def _records(program: Program, body: Sequence[ast.stmt]) -> bool:
    """Is a name, or the error, printed, logged or kept?"""
    for call in program.calls_in(body):
        told = program.method(call) in _RECORDS or "log" in words(program.method(call))
        if told and (_is_alone(program, call) or any(True for item in arguments(call) for _ in program.within(item, ast.Name))):
            return True
    targets = [target for part in body for node in program.within(part, ast.Assign) for target in node.targets]
    return any(isinstance(target, ast.Subscript) for target in targets)


def _is_alone(program: Program, node: ast.AST) -> bool:
    """One file, not one of many: any word about it will do."""
    return not program.loops_around(node) and program.facts.in_per_sample(node) is None


def _callers_record(program: Program, node: ast.AST) -> bool:
    """Do callers of this function ask for None, and raise or record?"""
    function = program.enclosing_function(node)
    for call in program.callers(function) if function is not None else []:
        names = set(program.targets(call))
        for other in program.nodes(ast.If):
            here = program.enclosing_function(other) is program.enclosing_function(call)
            if here and names & names_in(other.test) and _answers(program, other):
                return True
    return False


def _answers(program: Program, node: ast.If) -> bool:
    """It raises, or the branch taken for None records; keeping what did load in the other branch does not count."""
    positive = isinstance(node.test, ast.Name) or _tested_none(node.test, ast.IsNot) is not None
    return _raises(program, [*node.body, *node.orelse]) or _records(program, node.orelse if positive else node.body)
