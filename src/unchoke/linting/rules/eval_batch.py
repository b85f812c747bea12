"""Evaluation in batches no larger than training's.

Evaluation keeps nothing for a backward pass (under `no_grad`), so at the same memory its batches can be two to four times as
large as those of training. Taken over from training, they leave the device with little to do in each step.

**Write instead.** A size of its own, `batch_size=4 * BATCH`; start with twice the training batch. Results are the same as long
as they are counted by sample (`sum` over samples divided by their number), not averaged over batches.

**When this is fine.** Where pictures differ in size and cannot be stacked, where the decoder or the labels of a whole batch
fill the memory, or where evaluation is a small part of the run: it is a nit. Single pictures beside training in batches are a
choke, since they leave a device idle most of the time.

**Where.** On an accelerator. Commonly reported are 5 to 10 % of an evaluation for four times instead of twice the training batch;
4 % was measured on an H200, and the opposite, 14 % slower, on two CPU cores, where the larger batches did not fit the memory that
the process had at hand. `unchoke claims run evaluation-batch` measures it on yours.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from unchoke.code.constant_values import UNKNOWN
from unchoke.code.facts.loaders import BatchSource
from unchoke.code.facts.vocabulary import role_of
from unchoke.code.node_index import FunctionNode, arguments, parameters
from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule, line_of

RULE = Rule(
    code="eval-batch",
    group="device",
    stage="evaluation",
    title="evaluation in batches no larger than training's",
    kind="nit",
    gain="4 % of evaluation for twice the batch on an H200, none on two CPU cores",
    claim="Commonly reported gains, measured",
    command="unchoke claims run evaluation-batch",
)

_MANY = 4


def check(program: Program) -> Iterator[Hit]:
    loaders = [loader for loader in program.facts.loaders if loader.batch_node is not None and loader.batch is not None]
    for in_torch in (True, False):
        some = [loader for loader in loaders if (loader.framework == "torch") is in_torch]
        trained = [loader for loader in some if loader.role == "train"]
        for loader in some:
            if loader.role == "eval":
                other = _as_large(program, loader, trained)
                if other is not None:
                    yield _hit(program, loader, other)
            elif loader.role == "unknown" and _serves_both(program, loader):
                yield _hit(program, loader, None)


def _as_large(program: Program, loader: BatchSource, trained: list[BatchSource]) -> BatchSource | None:
    """A training loader, if the batches of this one are no larger than those of any."""
    if not trained:
        return None
    known = [other for other in trained if _number(other.batch)]
    if _number(loader.batch) and len(known) == len(trained):
        smallest = min(known, key=lambda other: other.batch)
        return smallest if loader.batch <= smallest.batch else None
    if _number(loader.batch) or any(_number(other.batch) for other in trained):
        return None
    same = [other for other in trained if _same_expression(program, loader, other)]
    return same[0] if len(same) == len(trained) else None


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same_expression(program: Program, loader: BatchSource, other: BatchSource) -> bool:
    """The same name for both, given in the same place."""
    first, second = loader.batch_node, other.batch_node
    if first is None or second is None or program.text(first) != program.text(second):
        return False
    if first is second and not _is_fixed(program, first, program.enclosing_function(first)):
        return False  # a helper called twice
    pairs = zip(program.within(first, ast.Name, ast.Attribute), program.within(second, ast.Name, ast.Attribute), strict=True)
    known = not any(True for node in (first, second) for _ in program.within(node, ast.Call, ast.IfExp))
    return known and all(program.reaching(one) == program.reaching(two) for one, two in pairs)


def _is_fixed(program: Program, node: ast.expr, function: FunctionNode | None) -> bool:
    """Is it no choice, and no parameter that callers give differing values?"""
    if any(True for _ in program.within(node, ast.IfExp, ast.Call)) or len(program.choices(node).nodes) > 1:
        return False
    if function is None:
        return True
    names = [part.id for part in program.within(node, ast.Name) if part.id in parameters(function)]
    given = [[program.argument_for(use, function, name) for use in program.callers(function)] for name in names]
    return all(len({program.text(item) for item in items if item is not None}) <= 1 for items in given)


def _serves_both(program: Program, loader: BatchSource) -> bool:
    """`{part: DataLoader(sets[part], batch_size=32) for part in ("train", "val")}`: one size for both."""
    if loader.batch_node is None or loader.call is not (loader.maker or loader.call):
        return False
    names = {part.id for part in program.within(loader.batch_node, ast.Name)}
    for target, over in _rounds(program, loader.call):
        roles = {role_of(item) for item in _strings(program, over)}
        if {"train", "eval"} <= roles:
            targets = {part.id for part in program.within(target, ast.Name)}
            return not names & targets and _is_fixed(program, loader.batch_node, None)
    function = program.enclosing_function(loader.call)
    alone = [other for other in program.facts.loaders if program.enclosing_function(other.call) is function]
    if function is None or len(alone) > 1 or not _is_fixed(program, loader.batch_node, function):
        return False
    return {"train", "eval"} <= {_role_of_use(program, use) for use in program.callers(function)}


def _role_of_use(program: Program, use: ast.Call) -> str:
    """What a call of a helper makes its loader for: by the variable, then by what is handed over."""
    given = arguments(use)
    words = [item.value for item in given if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    names = [program.written(item) for item in given]
    flags = [keyword.value for keyword in use.keywords if keyword.arg in ("training", "train", "is_training", "is_train")]
    names += [{True: "train", False: "eval"}.get(program.value(flag), "") for flag in flags]
    roles = (role_of(word) for word in [*program.targets(use), *words, *names])
    return next((role for role in roles if role != "unknown"), "unknown")


def _rounds(program: Program, node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets and what is looped over, of the loops and comprehensions round this."""
    for above in program.ancestors(node):
        if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return
        if isinstance(above, ast.For):
            yield above.target, above.iter
        for generator in getattr(above, "generators", ()):
            yield generator.target, generator.iter


def _strings(program: Program, node: ast.expr) -> list[str]:
    found = program.value(node)
    if found is UNKNOWN and isinstance(node, ast.Tuple | ast.List):
        found = tuple(program.value(item) for item in node.elts)
    return [item for item in found if isinstance(item, str)] if isinstance(found, tuple) else []


def _hit(program: Program, loader: BatchSource, other: BatchSource | None) -> Hit:
    size = _said(program, loader)
    node = loader.batch_node
    if other is None:
        message = f"evaluation gets the batches of training, {size}: both loaders are made here"
    else:
        line = line_of(program, other.call, seen_from=loader.call)
        message = f"evaluation in batches of {size}, no larger than training's {_said(program, other)} ({line})"
    text = program.text(node) if node is not None else "32"
    larger = f"{4 * node.value}" if isinstance(node, ast.Constant) and isinstance(node.value, int) else f"4 * {text}"
    single = other is not None and _is_one_by_one(loader, other)
    larger = program.text(other.batch_node) if single and other is not None and other.batch_node is not None else larger
    off = "as nothing is kept for gradients"
    why = off if _is_off(program, loader) else "once it runs under `torch.no_grad()`, which keeps nothing for gradients"
    return Hit(
        _place(program, loader),
        message,
        evidence={"batch": text, **({"training batch": program.text(other.batch_node)} if other and other.batch_node else {})},
        fix=f"give evaluation a larger batch: `{larger}` fits where training fits, {why}",
        kind="choke" if single else None,
        gain="a device that works on one picture at a time is idle most of it" if single else "",
    )


def _is_off(program: Program, loader: BatchSource) -> bool:
    """Are gradients off where these batches are gone through, by PyTorch's switches or by a trainer?"""
    names = set(loader.targets)
    loops = [loop for loop in program.nodes(ast.For) if any(part.id in names for part in program.within(loop.iter, ast.Name))]
    if loader.framework != "torch" or any(fit.kind != "sklearn" for fit in program.facts.fits):
        return True
    if loops:
        return all(program.facts.no_grad(loop.body[0]) for loop in loops)
    return any(item.no_grad for item in program.facts.evaluations)


def _is_one_by_one(loader: BatchSource, other: BatchSource) -> bool:
    """Single pictures leave a device idle, which is seen in the whole run; half of what fits is not."""
    return loader.batch == 1 and _number(other.batch) and bool(other.batch >= _MANY)


def _said(program: Program, loader: BatchSource) -> str:
    text = program.text(loader.batch_node) if loader.batch_node is not None else "32"
    return f"`{text}`" if text == str(loader.batch) or not _number(loader.batch) else f"`{text}` ({loader.batch})"


def _place(program: Program, loader: BatchSource) -> ast.AST:
    """Where the size is written: the loader's call, or the call of a helper that is given it."""
    maker = loader.maker
    if maker is not None and loader.batch_node is not None and program.index.holds(maker, loader.batch_node):
        return maker
    return loader.batch_node if loader.framework == "tfdata" and loader.batch_node is not None else loader.call
