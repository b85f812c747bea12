"""A checkpoint written again and again straight over the last one.

`torch.save`, `pickle.dump`, `json.dump` and `model.save` empty the old file first and then write the new one. A kill, a full
disk or an out-of-memory error in between leaves half a file: the new state is not there and the old one is gone. On a network
drive, where writing takes seconds, that is not rare.

**Write instead.** Beside the target, then one rename, which happens at once or not at all:

    torch.save(state, "last.pt.tmp")
    os.replace("last.pt.tmp", "last.pt")

The temporary file must be in the same folder, since a rename across file systems is a copy.

**When this is fine.** A name of its own for each epoch (`f"epoch_{epoch:03d}.pt"`), a file written once, a log that is
appended to. Keras' `ModelCheckpoint` and Lightning's checkpoints are not reported. `unchoke train` writes all its files this
way.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from unchoke.code.facts.epochs import epoch_runs
from unchoke.code.facts.saving import written_path
from unchoke.code.node_index import FunctionNode, LoopNode, default_of, is_none, names_in, parameters
from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    code="non-atomic-save",
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
_HOOK = re.compile(
    r"^on_(?:train_|validation_)?(?:epoch|batch|step)?_?(?:end|begin|start)$|^on_(?:train|validation|test)_(?:epoch|batch)_(?:end|start)$|^after_epoch$"
)
_ONCE = ("on_train_end", "on_train_begin", "on_train_start", "on_end", "on_begin")
_DEEPEST = 6


@dataclass(frozen=True, eq=False)
class Region:
    """Code that runs again and again while training: a loop's body (None for a callback) and functions."""

    loop: LoopNode | None
    functions: tuple[FunctionNode, ...]

    def blocks(self) -> tuple[ast.AST, ...]:
        return (*(self.loop.body if self.loop is not None else ()), *self.functions)


def check(program: Program) -> Iterator[Hit]:
    seen: set[ast.Call] = set()
    for region in _regions(program):
        for block in region.blocks():
            for call in program.within(block, ast.Call):
                if call not in seen and _overwrites(program, region, call):
                    seen.add(call)
                    yield _hit(program, call)


def _hit(program: Program, call: ast.Call) -> Hit:
    target = written_path(program, call)
    opened = _opened(program, target)
    path = program.text(opened[0] if opened else target)[:60] if target is not None else ""
    name = program.text(call.func)
    return Hit(
        call,
        f"`{name}` writes over `{path}` each time: a kill while it writes leaves neither the old file nor the new one",
        {"call": name, "path": path},
        f"write to a temporary name beside `{path}` and then `os.replace(temporary, {path})`",
    )


def _regions(program: Program) -> Iterator[Region]:
    loops = [run.node for run in epoch_runs(program)]
    for loop in program.facts.training_loops:
        node = loop.epochs if loop.epochs is not None else loop.node
        if isinstance(node, LoopNode):
            loops.append(node)
    for node in dict.fromkeys(loops):
        reached = {function for block in node.body for function in program.reach(block)}
        yield Region(node, tuple(program.in_order(reached)))
    for owner in program.nodes(ast.ClassDef):
        if any(base.rpartition(".")[2].endswith("Callback") for base in program.bases(owner)):
            functions = [item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name not in _ONCE]
            hooks = [item for item in functions if _HOOK.match(item.name)]
            more = {function for hook in hooks for function in program.reach(hook)} - set(hooks)
            yield Region(None, (*hooks, *program.in_order(more)))


def _overwrites(program: Program, region: Region, call: ast.Call) -> bool:
    target = written_path(program, call)
    if target is None or _only_once(program, region, call):
        return False
    opened = _opened(program, target)
    if opened is not None:
        target, mode, handle = opened
        if "a" in mode or "x" in mode or "r" in mode or not _is_inside(program, region, handle):
            return False
    return _is_fixed(program, region, target, 0) and not _is_renamed(program, region, call, target)


def _opened(program: Program, node: ast.AST | None) -> tuple[ast.expr, str, ast.expr] | None:
    """Path, mode and the opening call, where `node` is an open file."""
    made = node if isinstance(node, ast.Call) else program.latest(node) if isinstance(node, ast.Name) else None
    if not isinstance(made, ast.Call) or program.method(made) != "open":
        return None
    receiver = program.receiver(made)
    as_method = receiver is not None and program.name(made).startswith("?.")
    path = receiver if as_method else (made.args[0] if made.args else None)
    mode = program.value(program.argument(made, "mode", 0 if as_method else 1))
    return (path, mode if isinstance(mode, str) else "w", made) if path is not None else None


def _is_inside(program: Program, region: Region, node: ast.AST) -> bool:
    return any(program.index.holds(block, node) for block in region.blocks())


def _only_once(program: Program, region: Region, call: ast.Call) -> bool:
    """In the last epoch, before a `break`, or when stopped by hand."""
    for above in program.ancestors(call):
        if above is region.loop or isinstance(above, ast.FunctionDef):
            return False
        if isinstance(above, ast.ExceptHandler) and program.method(above.type) in ("KeyboardInterrupt", "Exception"):
            return True
        if isinstance(above, ast.If):
            block = above.body if program.index.holds_any(above.body, call) else above.orelse
            leaves = bool(block) and isinstance(block[-1], ast.Break | ast.Raise)
            if leaves or (block is above.body and _is_one_round(above.test)):
                return True
    return False


def _is_one_round(test: ast.expr) -> bool:
    """`epoch == EPOCHS - 1`, without a remainder."""
    if any(isinstance(part, ast.Mod) for part in ast.walk(test)):
        return False
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq):
        return False
    return isinstance(test.left, ast.Name | ast.BinOp) and "epoch" in ast.dump(test.left).lower()


def _is_fixed(program: Program, region: Region, node: ast.AST, depth: int) -> bool:
    """Is this path the same each time round?"""
    if depth > _DEEPEST:
        return False
    functions = {part.func for part in program.within(node, ast.Call)}
    if any(_EACH_TIME.search(program.name(func) or program.text(func)) for func in functions):
        return False
    inner = {part.value for part in program.within(node, ast.Attribute)}
    for part in program.within(node, ast.Name, ast.Attribute):
        if (part in functions and isinstance(part, ast.Name)) or part in inner:
            continue
        if not _is_fixed_name(program, region, part, depth):
            return False
    return True


def _is_fixed_name(program: Program, region: Region, node: ast.Name | ast.Attribute, depth: int) -> bool:
    name = program.written(node)
    if isinstance(node, ast.Attribute) and _COUNTS.search(node.attr):
        return False
    if name.startswith("self."):
        return _is_fixed_attribute(program, region, node, ".".join(name.split(".")[:2]), depth)
    root = name.split(".")[0]
    if not root:
        return True
    if root in _loop_names(program, region) or program.made_by(_root(node)).startswith("tempfile."):
        return False
    function = program.enclosing_function(node)
    if function in region.functions and function is not None and root in parameters(function):
        return root == "self" or _is_fixed_parameter(program, region, function, root, depth)
    if any(program.written(item.target) == root for block in region.blocks() for item in program.within(block, ast.AugAssign)):
        return False
    values = [value for value in program.assigned(root, node) if _is_inside(program, region, value)]
    if len(values) < _num_stores(program, region, root):
        return False  # unpacked from something, or bound otherwise
    return all(value is not node and _is_fixed_value(program, region, value, depth) for value in values)


def _num_stores(program: Program, region: Region, name: str) -> int:
    names = (part for block in region.blocks() for part in program.within(block, ast.Name))
    return len({part for part in names if part.id == name and isinstance(part.ctx, ast.Store)})


def _root(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node


def _is_fixed_value(program: Program, region: Region, value: ast.expr, depth: int) -> bool:
    """What a name is given inside the loop: a path put together of what does not change."""
    if isinstance(value, ast.Call) and program.function_of(value) is None:
        put_together = program.name(value).startswith(
            ("os.path.", "pathlib.", "str", "os.fspath", "?.joinpath", "?.with_", "?.format")
        )
        if not put_together:
            return False
    return _is_fixed(program, region, value, depth + 1)


def _is_fixed_attribute(program: Program, region: Region, node: ast.AST, name: str, depth: int) -> bool:
    if any(program.written(item.target) == name for item in program.nodes(ast.AugAssign)):
        return False
    values = program.assigned(name, node)
    inside = [value for value in values if _is_inside(program, region, value)]
    return bool(values) and all(_is_fixed_value(program, region, value, depth) for value in inside)


def _is_fixed_parameter(program: Program, region: Region, function: FunctionNode, name: str, depth: int) -> bool:
    """Does a call from this region give it the same each time?"""
    default = default_of(function, name)
    for call in program.callers(function):
        if not _is_inside(program, region, call):
            continue
        given = program.argument_for(call, function, name) or default
        if given is not None and not is_none(given) and _is_fixed(program, region, given, depth + 1):
            return True
    return False


def _loop_names(program: Program, region: Region) -> set[str]:
    """The variables of all loops of the region."""
    targets = [region.loop.target] if isinstance(region.loop, ast.For | ast.AsyncFor) else []
    for block in region.blocks():
        targets += [item.target for item in program.within(block, ast.For, ast.AsyncFor, ast.comprehension)]
    callback = {name for function in region.functions if region.loop is None for name in parameters(function)} - {"self"}
    return callback.union(*map(names_in, targets))


def _is_renamed(program: Program, region: Region, call: ast.Call, target: ast.expr) -> bool:
    """Is what was written here renamed afterwards?"""
    function = program.enclosing_function(call)
    blocks: tuple[ast.AST, ...] = (function,) if function is not None else region.blocks()
    said = _plain(program, target)
    temporary = bool(_TEMPORARY.search(said)) or any(
        _TEMPORARY.search(program.text(value)) for value in program.assigned(said, target)
    )
    for inner in program.calls_in(blocks):
        source = _renamed(program, inner)
        if source is not None and (temporary or _plain(program, source) == said):
            return True
    made = " ".join(program.text(item) for item in program.assigned(said, target))
    return bool(re.search(r"mkstemp|NamedTemporaryFile|TemporaryDirectory", made))


def _renamed(program: Program, call: ast.Call) -> ast.expr | None:
    if program.name(call) in _RENAMES and call.args:
        return call.args[0]
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr not in ("replace", "rename"):
        return None
    return func.value if len(call.args) == 1 and not call.keywords else None


def _plain(program: Program, node: ast.expr) -> str:
    """The path as text, without `str(…)` or `Path(…)` round it."""
    while isinstance(node, ast.Call) and len(node.args) == 1 and program.name(node) in ("str", "pathlib.Path", "os.fspath"):
        node = node.args[0]
    return program.text(node)
