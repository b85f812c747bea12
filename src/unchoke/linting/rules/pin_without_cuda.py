"""Pinned memory without CUDA.

`pin_memory=True` copies every batch once more, into page-locked memory, so that a CUDA device can fetch it while the CPU goes
on. On the CPU there is nothing to fetch, and on Apple's MPS host and device share memory: PyTorch gives a warning and the
setting has no use. At worst a thread and a copy of each batch are paid for nothing.

**Write instead.** `pin_memory=torch.cuda.is_available()`, or `pin_memory=device.type == "cuda"`, or leave it out. This can be
rewritten mechanically in the call of torch's own `DataLoader` (`--fix`): batches are the same either way.

**When this is fine.** As soon as the file can run on CUDA: it is only reported where a literal "cpu" or "mps" is the device and
CUDA is named nowhere.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.facts.devices import MPS, plain_device, torch_name
from unchoke.code.node_index import arguments
from unchoke.code.program import Program
from unchoke.linting.rule import Edit, Hit, Rule, offered

RULE = Rule(
    group="device",
    stage="copy",
    title="pinned memory without CUDA",
    kind="nit",
    gain="a copy of each batch",
    command="unchoke claims run pinned-memory",
    fixable=True,
    devices=("cpu", "mps"),
    frameworks=("torch",),
)
_POSITION = 7  # of pin_memory among DataLoader's parameters
_LOADERS = ("DataLoader", "ThreadDataLoader")


def check(program: Program) -> Iterator[Hit]:
    settings = list(_settings(program))
    device = plain_device(program) if settings else ""
    for value, is_loader in settings if device else ():
        torch = torch_name(program, value)
        instead = f"{torch or 'torch'}.cuda.is_available()"
        edit = Edit(program.place(value), instead) if isinstance(value, ast.Constant) and torch else None
        yield Hit(
            value,
            f"`pin_memory=True`, but the device of this file is {'MPS' if device == MPS else 'the CPU'}: "
            "pinned memory only serves copies to CUDA",
            evidence={"device": device},
            fix=f"write `pin_memory={instead}`, or leave it out",
            **offered(edit, proven=is_loader and not program.attributes("pin_memory")),
        )


def _settings(program: Program) -> Iterator[tuple[ast.expr, bool]]:
    """Where pinning is switched on, and whether torch's own loader is what is given it there: others may show or keep it."""
    for node in program.nodes(ast.Call, ast.Dict):
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            value = next((value for key, value in pairs if isinstance(key, ast.Constant) and key.value == "pin_memory"), None)
        elif program.method(node) in _LOADERS:
            value = program.argument(node, "pin_memory", _POSITION)
        else:
            value = program.argument(node, "pin_memory") if not program.name(node).startswith("torch.") else None
        if value is not None and program.value(value) is True:
            direct = isinstance(node, ast.Call) and value in arguments(node)
            yield value, direct and program.name(node) == "torch.utils.data.DataLoader"
