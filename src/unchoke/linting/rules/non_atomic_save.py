"""A checkpoint written again and again straight over the last one.

`torch.save`, `pickle.dump`, `json.dump` and `model.save` empty the old file first and then write the new one. A kill, a full
disk or an out-of-memory error in between leaves half a file: the new state is not there and the old one is gone. On a network
drive, where writing takes seconds, that is not rare.

**Write instead.** Beside the target, then one rename, which happens at once or not at all:

    torch.save(state, "last.pt.tmp")
    os.replace("last.pt.tmp", "last.pt")

The temporary file must be in the same folder, since a rename across file systems is a copy.

**When this is fine.** A name of its own for each epoch (`f"epoch_{epoch:03d}.pt"`), a file written once, a log that is
appended to. Keras' `ModelCheckpoint` and Lightning's checkpoints are not reported. `unchoke train` writes all files this way.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from unchoke.code.facts.conditions import leaves
from unchoke.code.facts.epochs import epoch_runs
from unchoke.code.facts.origins import loop_names
from unchoke.code.facts.saving import written_path
from unchoke.code.node_index import FunctionNode, LoopNode, default_of, is_none, parameters
from unchoke.code.program import Program
from unchoke.linting.questions import inherits, tests_round
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    group="resume",
    stage="checkpoint",
    title="a file overwritten in place, again and again",
    kind="nit",
    gain="no half-written checkpoint after a kill",
    command="unchoke train",
)
_RENAMES = frozenset({"os.replace", "os.rename", "os.renames", "shutil.move", "tf.io.gfile.rename", "tf.io.gfile.replace"})
_TEMPORARY = re.compile(r"tmp|temp|\bpart|_part|partial|\.new\b|_new\b|mkstemp", re.IGNORECASE)
_EACH_TIME = re.compile(
    r"time|datetime|strftime|uuid|random|tempfile|mkstemp|mkdtemp|counter|^next$|getpid|now$|today$|epoch|step|iter",
    re.IGNORECASE,
)
_COUNTS = re.compile(
    r"(?:^|_)(?:epoch|epochs_done|step|steps|iter|iteration|global_step|current_epoch|round|batch_idx|num_updates)$",
    re.IGNORECASE,
)
_ONCE = ("on_train_end", "on_train_begin", "on_train_start", "on_end", "on_begin")
_PUT_TOGETHER = ("os.path.", "pathlib.", "str", "os.fspath", "?.joinpath", "?.with_", "?.format")
_DEEPEST = 6


@dataclass(frozen=True, eq=False)
class Region:
    """Code that runs again and again while training, of a loop or a callback, with functions; names that change."""

    blocks: tuple[ast.AST, ...]
    changing: set[str]


def check(program: Program) -> Iterator[Hit]:
    seen: set[ast.Call] = set()
    for region in _regions(program):
        for call in program.calls_in(region.blocks):
            target = _overwritten(program, region, call) if call not in seen else None
            if target is not None:
                seen.add(call)
                name, path = program.text(call.func), program.text(target)[:60]
                yield Hit(
                    call,
                    f"`{name}` writes over `{path}` each time: a kill while it writes leaves neither the old file nor the "
                    "new one",
                    {"call": name, "path": path},
                    "write to a temporary name beside it, and then `os.replace` that over it",
                )


def _regions(program: Program) -> Iterator[Region]:
    loops = [run.node for run in epoch_runs(program)] + [loop.epochs or loop.node for loop in program.facts.training_loops]
    for loop in dict.fromkeys(loops):
        if isinstance(loop, LoopNode):
            reached = {function for block in loop.body for function in program.reach(block)}
            yield Region((*loop.body, *program.in_order(reached)), loop_names(loop))
    for owner in program.nodes(ast.ClassDef):
        if inherits(program, owner, "Callback"):
            functions = [item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name not in _ONCE]
            hooks = [item for item in functions if item.name.startswith(("on_", "after_epoch"))]
            reached = {function for hook in hooks for function in program.reach(hook)} - set(hooks)
            given = {name for function in (*hooks, *reached) for name in parameters(function)} - {"self"}
            yield Region((*hooks, *program.in_order(reached)), given)


def _overwritten(program: Program, region: Region, call: ast.Call) -> ast.expr | None:
    """The path that this call writes, where it is the same each time and nothing is renamed over it."""
    target = written_path(program, call)
    opened = program.latest(target) if isinstance(target, ast.Name) else target
    if isinstance(opened, ast.Call) and program.method(opened) == "open":
        path = program.receiver(opened) if program.name(opened).startswith("?.") else None  # path.open("wb")
        mode = program.value(program.argument(opened, "mode", 1 if path is None else 0))
        if (isinstance(mode, str) and set(mode) & {"a", "x", "r"}) or not _is_inside(program, region, opened):
            return None
        target = path or next(iter(opened.args), None)
    if target is None or _only_once(program, call) or not _is_fixed(program, region, target, 0):
        return None
    return None if _is_renamed(program, region, call, target) else target


def _is_inside(program: Program, region: Region, node: ast.AST) -> bool:
    return any(program.index.holds(block, node) for block in region.blocks)


def _only_once(program: Program, call: ast.Call) -> bool:
    """In the last epoch (`epoch == EPOCHS - 1`, without a remainder), before a `break`, or when stopped by hand."""
    tests = (test for test in tests_round(program, call) if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq))
    return leaves(program, call) or any("epoch" in text and "%" not in text for text in map(program.text, tests))


def _is_fixed(program: Program, region: Region, node: ast.AST, depth: int) -> bool:
    """Is this path the same each time round?"""
    functions = (part.func for part in program.within(node, ast.Call))
    if depth > _DEEPEST or any(_EACH_TIME.search(program.name(func) or program.text(func)) for func in functions):
        return False
    return all(_is_fixed_name(program, region, part, depth) for part in program.within(node, ast.Name, ast.Attribute))


def _is_fixed_name(program: Program, region: Region, node: ast.Name | ast.Attribute, depth: int) -> bool:
    name = program.written(node)
    own = name.startswith("self.")
    root = ".".join(name.split(".")[: 2 if own else 1])
    if (isinstance(node, ast.Attribute) and _COUNTS.search(node.attr)) or root in region.changing:
        return False
    if program.made_by(node).startswith("tempfile."):
        return False
    function = program.enclosing_function(node)
    if function in region.blocks and function is not None and root in parameters(function):
        return root == "self" or _is_fixed_parameter(program, region, function, root, depth)
    values = program.assigned(root, node)
    inside = [value for value in values if _is_inside(program, region, value)]
    names = [part for block in region.blocks for part in program.within(block, ast.Name, ast.Attribute)]
    stores = {part for part in names if isinstance(part.ctx, ast.Store) and program.written(part) == root}
    if (own and not values) or len(inside) < len(stores):
        return False  # of elsewhere, counted up, unpacked from something, or bound otherwise
    calls = [value for value in inside if isinstance(value, ast.Call) and program.function_of(value) is None]
    put_together = all(program.name(call).startswith(_PUT_TOGETHER) for call in calls)
    return put_together and all(value is not node and _is_fixed(program, region, value, depth + 1) for value in inside)


def _is_fixed_parameter(program: Program, region: Region, function: FunctionNode, name: str, depth: int) -> bool:
    """Does a call from this region give it the same each time?"""
    calls = [call for call in program.callers(function) if _is_inside(program, region, call)]
    given = [program.argument_for(call, function, name) or default_of(function, name) for call in calls]
    return any(item is not None and not is_none(item) and _is_fixed(program, region, item, depth + 1) for item in given)


def _is_renamed(program: Program, region: Region, call: ast.Call, target: ast.expr) -> bool:
    """Is it temporary by its name, and something renamed there? `path.replace(other)` has one argument, a string's has two."""
    function, said = program.enclosing_function(call), program.text(target)
    if not any(_TEMPORARY.search(text) for text in (said, *map(program.text, program.assigned(said, target)))):
        return False
    calls = [item for item in program.calls_in((function,) if function is not None else region.blocks) if item.args]
    paths = (item for item in calls if program.method(item) in ("replace", "rename"))
    return any(program.name(item) in _RENAMES for item in calls) or any(len(item.args) == 1 for item in paths)
