"""Evaluation in batches no larger than training's.

Evaluation keeps nothing for a backward pass (under `no_grad`), so at the same memory its batches can be two to four times as
large as those of training. Taken over from training, they leave the device with little to do in each step.

**Write instead.** A size of its own, `batch_size=4 * BATCH`; start with twice the training batch. Results are the same as long
as they are counted by sample (`sum` over samples divided by their number), not averaged over batches.

**When this is fine.** Where pictures differ in size and cannot be stacked, where the decoder or the labels of a whole batch
fill the memory, where a loader leaves out what does not fill a batch, or where evaluation is a small part of the run. Always a
nit: none of this is told by a file.

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
            other = _as_large(loader, [other for other in alike if other.role == "train"])
            if other is not None:
                yield _hit(program, loader, other)


def _as_large(loader: BatchSource, trained: list[BatchSource]) -> BatchSource | None:
    """A training loader, if the batches of this one are no larger than those of any."""
    if not trained or not all(is_number(item.batch) for item in (loader, *trained)):
        return None
    smallest = min(trained, key=lambda other: other.batch)
    return smallest if loader.batch <= smallest.batch else None


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
