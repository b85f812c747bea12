"""Questions that several rules ask of a program, in the words in which they ask them.

In come a program and nodes of it, out go plain answers. What a program does is told by `unchoke.code.facts`; here answers of
those are put together. Finds nothing by itself.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import partial

from unchoke.code.facts.flow import follow
from unchoke.code.facts.keeping import is_kept
from unchoke.code.facts.loaders import BatchSource
from unchoke.code.facts.loops import is_range, unwrapped
from unchoke.code.facts.origins import comprehensions_round, runs_for_each_sample, sources
from unchoke.code.facts.vocabulary import words
from unchoke.code.node_index import arguments, remembered
from unchoke.code.program import Program

Round = ast.For | ast.AsyncFor | ast.comprehension
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_DRAWN = re.compile(
    r"^(?:torch|numpy\.random|tf\.random)\.(?:randn?|randint|normal|uniform|random|random_sample|standard_normal)$"
)
_SETS_OF_NOTHING = re.compile(
    r"\.make_(?:blobs|moons|circles|classification|regression|swiss_roll)$|(?:^|\.)FakeData$|\.linspace$"
)
_READS = re.compile(
    r"(?:^|[._])(?:im|)(?:load|read|open|decode|fetch|download)(?!_state_dict|_weights|ing)(?:_\w+|er|s)?$|^(?:datasets|tensorflow_datasets)\.|"
    r"\.ImageFolder$|^h5py\.File$|^torchvision\.datasets\.(?!FakeData)"
)
MEASURES = frozenset(
    {"profile", "profiler", "profiling", "benchmark", "bench", "measure", "measurement", "timing", "timer", "time", "flops",
     "speed", "latency", "throughput", "warmup"}
)  # fmt: skip
_DRAWS = frozenset({"sample", "choices", "choice", "take"})


def is_done_anew(program: Program, node: ast.AST, *, by_sample: bool = True) -> bool:
    """Does it run for every sample, and nothing keeps what it makes? `by_sample` as for `is_kept`."""
    return runs_for_each_sample(program, node) is not None and not is_kept(program, node, by_sample=by_sample)


def is_path_call(program: Program, call: ast.Call, names: frozenset[str], methods: frozenset[str]) -> bool:
    """A function of one of these names, or a method of what is likely a path."""
    name, on_unknown = program.name(call), program.name(call).startswith("?.") and program.function_of(call) is None
    return name in names or (program.method(call) in methods and (on_unknown or name.startswith("pathlib.Path.")))


def calls_run_by(program: Program, *parts: ast.AST) -> Iterator[ast.Call]:
    """The calls in these parts of the file, then those of the functions that they reach."""
    reached = {function for part in parts for function in program.reach(part)}
    return program.calls_in([*parts, *program.in_order(reached - set(parts))])


def acts(program: Program, *blocks: ast.AST) -> bool:
    """`env.step(action.cpu().numpy())`: each round waits for what an environment answers, and goes on from there."""
    run = calls_run_by(program, *blocks)
    return any(program.method(call) == "step" and "env" in program.text(call.func).lower() for call in run)


def torch_loaders(program: Program) -> list[BatchSource]:
    """The loaders of PyTorch."""
    return [loader for loader in program.facts.loaders if loader.framework == "torch"]


def inherits(program: Program, owner: ast.ClassDef | None, *names: str) -> bool:
    """Has the class one of these among its bases, by the end of its name?"""
    return owner is not None and any(base.rpartition(".")[2].endswith(names) for base in program.bases(owner))


def whole_round(program: Program, loop: Round) -> ast.AST:
    """The loop itself; of a comprehension's `for`, the comprehension."""
    return (program.parent(loop) or loop) if isinstance(loop, ast.comprehension) else loop


def rounds_of(program: Program, node: ast.AST) -> list[Round]:
    """The `for` parts round a node, of comprehensions and of loops, innermost first."""
    loops = (loop for loop in program.loops_around(node) if not isinstance(loop, ast.While))
    return [*comprehensions_round(program, node), *loops]


def num_items(program: Program, node: ast.expr) -> int | None:
    """How many rounds a loop over this has, where the file says so: a list, `range(n)`, `random.sample(paths, n)`."""
    inner = unwrapped(program, node)
    inner = (program.latest(inner) or inner) if isinstance(inner, ast.Name) else inner
    if isinstance(inner, ast.List | ast.Tuple):
        return None if any(isinstance(item, ast.Starred) for item in inner.elts) else len(inner.elts) or None  # [] grows
    if not isinstance(inner, ast.Call) or not inner.args:
        return None
    size = program.argument(inner, "size") or program.argument(inner, "k") or inner.args[-1]
    told = program.method(inner) in _DRAWS or (is_range(program, inner) and len(inner.args) == 1)
    count = program.value(size) if told else None
    return count if isinstance(count, int) else None


@remembered
def is_made_up(program: Program) -> bool:
    """Is all that it trains on drawn at random by itself, so that it tries the code and nobody waits for what it learns?"""
    if any(_READS.search(program.name(call)) for call in program.nodes(ast.Call)):
        return False
    loops = [loop.node for loop in program.facts.training_loops]
    run = [call.args[0] for call in program.calls_in(loops) if call.args and program.facts.is_forward(call)]
    made = [*map(partial(sources, program), _trained_on(program))] or [*map(program.made_of, run)]
    return bool(made) and all(any(isinstance(part, ast.Call) and _is_drawn(program, part) for part in parts) for parts in made)


def _trained_on(program: Program) -> Iterator[ast.AST]:
    """What loaders and Keras are given: data sets (the class, where it is here) and arrays."""
    yield from (loader.dataset_class or loader.dataset or loader.call for loader in torch_loaders(program))
    yield from (fit.call.args[0] for fit in program.facts.fits if fit.call.args)


def _is_drawn(program: Program, call: ast.Call) -> bool:
    """Numbers of a shape that is written down, not one for a choice nor noise in the shape of something else."""
    name, sides = program.name(call), [item for item in arguments(call) if isinstance(item, ast.Tuple)]
    shaped = bool(sides) or (len(call.args) > 1 and name.endswith(("rand", "randn")))
    return bool(_SETS_OF_NOTHING.search(name)) or (shaped and bool(_DRAWN.search(name)))


def tests_round(program: Program, node: ast.AST) -> list[ast.expr]:
    """The conditions under which a node runs, of `if` and `elif`, the innermost first."""
    return [
        above.test for above in program.ancestors(node) if isinstance(above, ast.If) and not program.index.holds(above.test, node)
    ]


def function_around(program: Program, node: ast.AST) -> tuple[str, str]:
    """The name of the function that a node is in, plain and as a message shows it."""
    function = program.enclosing_function(node)
    return (function.name, f"`{function.name}`") if function is not None else ("lambda", "a lambda")


def opened_path(program: Program, node: ast.AST) -> ast.AST:
    """The path, of `open(path, "rb")` and of a name that `with open(path) as file` gives; else the node itself."""
    made = program.latest(node) if isinstance(node, ast.Name) else node
    return made.args[0] if isinstance(made, ast.Call) and program.method(made) == "open" and made.args else node


def words_in(node: ast.AST) -> set[str]:
    """The words of all names and attributes in an expression, also without the s of a plural; a `DataFrame` is one."""
    names = [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]
    names += [part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)]
    found = {word for name in names for word in words(name.replace("DataFrame", "table").replace("data_frame", "table"))}
    return found | {word.removesuffix("s") for word in found}


def names_holding(program: Program, call: ast.Call) -> frozenset[str]:
    """The variables that hold what a call made, or something made of it."""
    return frozenset(value.id for value in follow(program, call) if isinstance(value, ast.Name))
