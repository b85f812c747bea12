"""Evaluation in batches no larger than training's.

Evaluation keeps nothing for a backward pass (under `no_grad`), so at the same memory its batches can be two to four times as
large as those of training. Taken over from training, they leave the device with little to do in each step.

**Write instead.** A size of its own, `batch_size=4 * BATCH`; start with twice the training batch. Results are the same as long
as they are counted by sample (`sum` over samples divided by their number), not averaged over batches.

**When this is fine.** Where pictures differ in size and cannot be stacked, where the decoder or the labels of a whole batch
fill the memory, or where evaluation is a small part of the run: it is a nit. Single pictures after each epoch, beside training
in batches, are a choke, since they leave a device idle most of the time; not where the loop draws each of them or takes the
batch of one apart.

**Where.** On an accelerator: 4 % of an evaluation was measured on an H200 for twice the batch, and 14 % more time on two CPU
cores. `unchoke claims run evaluation-batch` measures it on yours.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.constant_values import is_number
from unchoke.code.facts.loaders import BatchSource
from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule, line_of

RULE = Rule(
    group="device",
    stage="evaluation",
    title="evaluation in batches no larger than training's",
    kind="nit",
    gain="4 % of evaluation for twice the batch on an H200, none on two CPU cores",
    claim="Commonly reported gains, measured",
    command="unchoke claims run evaluation-batch",
)


def check(program: Program) -> Iterator[Hit]:
    loaders = [loader for loader in program.facts.loaders if loader.batch_node is not None and loader.batch is not None]
    for loader in loaders:
        alike = [other for other in loaders if (other.framework == "torch") is (loader.framework == "torch")]
        if loader.role == "eval":
            other = _as_large(program, loader, [other for other in alike if other.role == "train"])
            if other is not None:
                yield _hit(program, loader, other)


def _as_large(program: Program, loader: BatchSource, trained: list[BatchSource]) -> BatchSource | None:
    """A training loader, if the batches of this one are no larger than those of any."""
    if not trained:
        return None
    if all(is_number(item.batch) for item in (loader, *trained)):
        smallest = min(trained, key=lambda other: other.batch)
        return smallest if loader.batch <= smallest.batch else None
    return trained[0] if all(_same_expression(program, loader, other) for other in trained) else None


def _same_expression(program: Program, loader: BatchSource, other: BatchSource) -> bool:
    """The same name for both, given in the same place."""
    first, second = loader.batch_node, other.batch_node
    if first is None or second is None or program.text(first) != program.text(second):
        return False
    if first is second:
        return _is_fixed(program, first)  # a helper called twice
    pairs = zip(program.within(first, ast.Name, ast.Attribute), program.within(second, ast.Name, ast.Attribute), strict=True)
    return all(program.reaching(one) == program.reaching(two) for one, two in pairs)


def _is_fixed(program: Program, node: ast.expr) -> bool:
    """Is it no choice, and no parameter that callers give differing values?"""
    given = [program.given_by_callers(part.id, part) for part in program.within(node, ast.Name)]
    differing = any(len({program.text(item) for item in items}) > 1 for items in given)
    return not differing and len(program.choices(node).nodes) <= 1


def _hit(program: Program, loader: BatchSource, other: BatchSource) -> Hit:
    node, size, text = loader.batch_node, _said(program, loader), _text(program, loader)
    larger = f"{4 * node.value}" if isinstance(node, ast.Constant) and isinstance(node.value, int) else f"4 * {text}"
    line = line_of(program, other.call, seen_from=loader.call)
    return Hit(
        _place(program, loader),
        f"evaluation in batches of {size}, no larger than training's {_said(program, other)} ({line})",
        evidence={"batch": text, "training batch": _text(program, other)},
        fix=f"give evaluation a larger batch: `{larger}` fits where training fits, under `torch.no_grad()` in PyTorch",
    )


def _text(program: Program, loader: BatchSource) -> str:
    return program.text(loader.batch_node or loader.call)


def _said(program: Program, loader: BatchSource) -> str:
    text = _text(program, loader)
    return f"`{text}`" if text == str(loader.batch) or not is_number(loader.batch) else f"`{text}` ({loader.batch})"


def _place(program: Program, loader: BatchSource) -> ast.AST:
    """Where the size is written: the loader's call, or the call of a helper that is given it."""
    node = loader.batch_node or loader.call
    if loader.maker is not None and program.index.holds(loader.maker, node):
        return loader.maker
    return node if loader.framework == "tfdata" else loader.call
