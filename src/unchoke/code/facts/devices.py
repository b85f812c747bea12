"""Which device a program states: cuda, mps or cpu, by name or by call, and whether it looks first if there is one.

The words are compared only through tables: what suits a device is decided elsewhere.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from unchoke.code.constant_values import Valued

_DEVICE_WORD = re.compile(r"^(cuda|mps|cpu)(?::\d+)?$")
_TF_DEVICE = re.compile(r"^/?(?:device:)?(gpu|cpu):?\d*$", re.IGNORECASE)
_GUARDS = frozenset(
    {
        "is_available",
        "list_physical_devices",
        "list_logical_devices",
        "device_count",
        "is_built",
        "is_gpu_available",
        "is_built_with_cuda",
    }
)
_TAKERS = frozenset({"to", "device", "set_default_device", "to_device"})
CUDA, MPS, CPU = "cuda", "mps", "cpu"
_LIGHTNING = {"gpu": CUDA, "cuda": CUDA, "mps": MPS, "cpu": CPU}


@dataclass(frozen=True)
class Devices:
    """`stated` maps each device named to the nodes that name it as a place to run; `only` is the one device, if there is one."""

    stated: dict[str, list[ast.AST]] = field(default_factory=dict)
    guards: list[ast.Call] = field(default_factory=list)
    only: str | None = None

    @property
    def states_cuda(self) -> bool:
        return CUDA in self.stated

    @property
    def states_mps(self) -> bool:
        return MPS in self.stated

    @property
    def states_cpu(self) -> bool:
        return CPU in self.stated

    @property
    def cuda_guarded(self) -> bool:
        return bool(self.guards)

    def nodes(self, device: str) -> list[ast.AST]:
        """The places that name this device, in order."""
        return self.stated.get(device, [])


def devices(program: Valued) -> Devices:
    """What the whole program says about devices."""
    stated: dict[str, list[ast.AST]] = {}
    guards: list[ast.Call] = []
    for call in program.nodes(ast.Call):
        if program.method(call) in _GUARDS:
            guards.append(call)
        for device, node in _named(program, call):
            stated.setdefault(device, []).append(node)
    for device, node in _variables(program):
        stated.setdefault(device, []).append(node)
    moved = {device for device in stated if any(not is_transfer(program, node) for node in stated[device])}
    only = next(iter(moved)) if len(moved) == 1 and not guards else None
    return Devices({device: _in_order(program, nodes) for device, nodes in stated.items()}, guards, only)


def _in_order(program: Valued, nodes: list[ast.AST]) -> list[ast.AST]:
    return sorted(dict.fromkeys(nodes), key=lambda node: program.index.number[node])


def is_transfer(program: Valued, node: ast.AST) -> bool:
    """Only brings results or a file home (`.cpu()`, `map_location="cpu"`): says nothing of where the work is done."""
    if isinstance(node, ast.Call):
        return program.method(node) == CPU
    parent = program.parent(node)
    if isinstance(parent, ast.keyword):
        return parent.arg == "map_location"
    return isinstance(parent, ast.Call) and program.method(parent) in ("to", "load") and _word(program, node) == CPU


def _named(program: Valued, call: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    """Devices that one call names."""
    method = program.method(call)
    if method in (CUDA, CPU) and isinstance(call.func, ast.Attribute) and not program.name(call).startswith("torch."):
        yield method, call
    if method in _TAKERS and call.args:
        yield from _words(program, call.args[0])
    for keyword in call.keywords:
        if keyword.arg in ("device", "map_location"):
            yield from _words(program, keyword.value)
        elif keyword.arg in ("accelerator", "gpus") and method == "Trainer":
            yield from _accelerators(program, keyword)


def _accelerators(program: Valued, keyword: ast.keyword) -> Iterator[tuple[str, ast.AST]]:
    given = program.value(keyword.value)
    if keyword.arg == "gpus" and isinstance(given, int) and given:
        yield CUDA, keyword.value
    elif isinstance(given, str) and given in _LIGHTNING:
        yield _LIGHTNING[given], keyword.value


def _words(program: Valued, node: ast.expr) -> Iterator[tuple[str, ast.AST]]:
    """Device words in an expression, through `a if … else b`; a variable's words are counted where it is assigned."""
    for part in [node] if isinstance(node, ast.Constant) else list(program.within(node, ast.Constant)):
        word = _word(program, part)
        if word:
            yield word, part


def _word(program: Valued, node: ast.AST) -> str:
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return ""
    found = _DEVICE_WORD.match(node.value)
    if found:
        return found.group(1)
    tf = _TF_DEVICE.match(node.value)
    return _LIGHTNING.get(tf.group(1).lower(), "") if tf and ("/" in node.value or ":" in node.value) else ""


def _variables(program: Valued) -> Iterator[tuple[str, ast.AST]]:
    """`device = "cuda"`, `DEVICE = "mps" if … else "cpu"`, `default="cuda"` of an option `--device`."""
    for node in program.nodes(ast.Assign, ast.AnnAssign):
        if node.value is not None and not isinstance(node.value, ast.Call | ast.Dict | ast.List | ast.Tuple | ast.Lambda):
            yield from _words(program, node.value)
    for call in program.calls_to("add_argument"):
        default = program.argument(call, "default")
        if default is not None:
            yield from _words(program, default)
    for function in program.nodes(ast.FunctionDef):
        for default in (*function.args.defaults, *(item for item in function.args.kw_defaults if item)):
            yield from _words(program, default)
