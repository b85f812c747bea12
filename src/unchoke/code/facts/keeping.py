"""Is what a line makes kept, so that the next sample or the next epoch does not make it again?

Kept in a dict, an attribute or a file, by `lru_cache` or by tf.data's `.cache()`. In comes a node, out goes yes or no. Whether it
is right to keep it (after a random transform it is not) is for rules to say.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.facts.conditions import DISK, is_there, looks_on_disk, missing
from unchoke.code.facts.per_sample import is_tf_dataset
from unchoke.code.node_index import FunctionNode, targets_of
from unchoke.code.program import Program

_REMEMBERING = frozenset({"lru_cache", "cache", "cached_property", "cached", "memoize", "memoized", "cachedmethod", "memoise"})
_SAVES = frozenset(
    {"numpy.save", "numpy.savez", "numpy.savez_compressed", "torch.save", "cv2.imwrite", "pickle.dump", "joblib.dump",
     "imageio.imwrite", "skimage.io.imsave", "tifffile.imwrite", "torchvision.io.write_png", "torchvision.io.write_jpeg",
     "tf.io.write_file"}
)  # fmt: skip
_SAVE_METHODS = frozenset({"save", "tofile", "setdefault", "set", "put", "imwrite", "write_bytes"})


def is_kept(program: Program, node: ast.AST, *, by_sample: bool = True) -> bool:
    """Is `node` run once and its result kept? Without `by_sample`, a cache of samples (`if i in done: return`) does not count."""
    return _kept(program, node, set(), by_sample=by_sample)


def is_save(program: Program, call: ast.Call) -> bool:
    """A call that writes a picture or an array to a file."""
    name = program.name(call)
    return name in _SAVES or (name.startswith("?.") and name[2:] in ("save", "tofile", "imwrite"))


def _kept(program: Program, node: ast.AST, seen: set[ast.AST], *, by_sample: bool) -> bool:
    function = program.enclosing_function(node)
    if any(_keeps(program, above, node) for above in _blocks(program, node)):
        return True
    if function is None or function in seen:
        return False
    seen.add(function)
    if is_remembered(program, function) or (by_sample and _returned_before(program, function, node)):
        return True
    if any(record.function is function for record in program.facts.per_sample):
        return by_sample and is_cached_dataset(program, function)
    calls = [call for call in program.callers(function) if program.facts.in_per_sample(call) is not None]
    return bool(calls) and all(_kept(program, call, seen, by_sample=by_sample) for call in calls)


def _blocks(program: Program, node: ast.AST) -> Iterator[ast.If | ast.ExceptHandler]:
    for above in program.ancestors(node):
        if isinstance(above, FunctionNode | ast.Lambda):
            return
        if isinstance(above, ast.If | ast.ExceptHandler):
            yield above


def _keeps(program: Program, block: ast.If | ast.ExceptHandler, node: ast.AST) -> bool:
    """A block that runs for the first time only and puts what it makes where the next time finds it."""
    if isinstance(block, ast.ExceptHandler):
        return program.method(block.type) in ("KeyError", "AttributeError") and _stores(program, block.body, "")
    if program.index.holds_any(block.body, node):
        return any(_stores(program, block.body, name) for name in missing(program, block.test))
    there = looks_on_disk(program, block.test)
    return there and program.index.holds_any(block.orelse, node) and _stores(program, block.orelse, DISK)


def _stores(program: Program, block: list[ast.stmt], name: str) -> bool:
    """Does the block assign `name`, put into it, or (for a local name or none) put anything anywhere that outlives the call?"""
    own = name == "" or name == DISK or "." not in name
    for statement in block:
        for node in program.within(statement, ast.Assign, ast.AnnAssign):
            targets = targets_of(node)
            if any(_is_store(program, target, name, own=own) for target in targets):
                return True
        for call in program.within(statement, ast.Call):
            if is_save(program, call) or (program.method(call) in _SAVE_METHODS and isinstance(call.func, ast.Attribute)):
                return True
            if (helper := program.function_of(call)) is not None and "." in name:  # `if self.file is None: self.open_file()`
                assigned = [target for node in program.within(helper, ast.Assign, ast.AnnAssign) for target in targets_of(node)]
                if any(_is_store(program, target, name, own=own) for target in assigned):
                    return True
    return False


def _is_store(program: Program, target: ast.expr, name: str, *, own: bool) -> bool:
    if isinstance(target, ast.Tuple | ast.List):
        return any(_is_store(program, part, name, own=own) for part in target.elts)
    if isinstance(target, ast.Subscript) and (own or program.written(target.value) == name):
        return name != DISK
    written, function = program.written(target), program.enclosing_function(target)
    if "." in name or not own or name == DISK:
        return "." in name and written == name
    stated = program.within(function, ast.Global, ast.Nonlocal) if function is not None else iter(())
    return written.startswith("self.") or any(written in node.names for node in stated)


def _returned_before(program: Program, function: FunctionNode, node: ast.AST) -> bool:
    """`if key in cache: return cache[key]` or `if exists(small): return load(small)` comes first, and the function stores."""
    for test in program.within(function, ast.If):
        if program.index.number[test] >= program.index.number[node] or not isinstance(test.body[-1], ast.Return):
            continue
        if is_there(test.test) and _stores(program, function.body, ""):
            return True
        if looks_on_disk(program, test.test) and any(is_save(program, call) for call in program.within(function, ast.Call)):
            return True
    return False


def is_remembered(program: Program, function: FunctionNode) -> bool:
    """Decorated with `lru_cache` or the like, or wrapped in it: `memory.cache(load)`, `lru_cache(8)(load)`."""
    if any(program.method(mark) in _REMEMBERING for mark in function.decorator_list):
        return True
    for call in program.calls_to(*_REMEMBERING):
        parent = program.parent(call)
        outer = [parent] if isinstance(parent, ast.Call) and parent.func is call else []
        if any(item.args and program.callable_of(item.args[0]) is function for item in (call, *outer)):
            return True
    return False


def is_cached_dataset(program: Program, function: ast.AST) -> bool:
    """Is every tf.data pipeline that runs this function cached behind it?"""
    calls = program.calls_to("map", "interleave", "flat_map", "from_generator")
    uses = [call for call in calls if _runs(program, call, function) and is_tf_dataset(program, call)]
    if not uses:
        return False
    caches = program.calls_to("cache", "snapshot")
    kept = {call for cache in caches for call in program.made_of(program.receiver(cache))}
    return all(call in kept for call in uses)


def _runs(program: Program, call: ast.Call, function: ast.AST) -> bool:
    given = program.callable_of(call.args[0]) if call.args else None
    return given is not None and (
        given is function or (isinstance(given, ast.Lambda) and function in program.called_functions(given))
    )
