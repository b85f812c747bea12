"""Where a value lives as far as reading can tell: on the device (a tensor that work made there), on the host, or unknown.

In comes an expression of a training or evaluation loop, out goes DEVICE, HOST or UNKNOWN_PLACE. Follows variables in the order
of reading, unpacking, loops, `+=` and functions of the same file. What a loader hands over is on the host until it is moved.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import Literal

from unchoke.code.facts.asking import Question
from unchoke.code.facts.devices import CPU, CUDA
from unchoke.code.node_index import arguments, names_in, parameters
from unchoke.code.program import Program

Where = Literal["device", "host", "unknown"]
DEVICE: Where = "device"
HOST: Where = "host"
UNKNOWN_PLACE: Where = "unknown"
_TO_HOST = frozenset(
    {"item", "tolist", "numpy", CPU, "size", "dim", "numel", "get_last_lr", "nelement", "get_scale", "keys", "train_on_batch"}
)
_HOST_FACTS = frozenset(
    {"shape", "ndim", "dtype", "device", "requires_grad", "batch_size", "training", "dataset", "param_groups"}
)
_HOST_CALLS = frozenset(
    {"float", "int", "len", "str", "round", "range", "bool", "enumerate", "time.time", "time.perf_counter", "input", "open"}
)
_FACTORIES = re.compile(
    r"^torch\.(?:zeros|ones|empty|full|tensor|as_tensor|arange|linspace|eye|rand|randn|randint|randperm|from_numpy|load|Tensor|\w+Tensor)$"
)
_LOSS = re.compile(r"loss|crit|objective|bce|dice|mse|xent|huber|^ce$|cross_?ent", re.IGNORECASE)
_KEYED = frozenset({"named_parameters", "named_buffers", "items", "named_modules", "named_children"})
_OF_MODEL = frozenset({"parameters", "named_parameters", "buffers", "named_buffers", "state_dict"})
_MOVED_FOR_YOU = frozenset(
    {"prepare", "setup_dataloaders", "DeviceDataLoader", "DevicePrefetcher", "DataPrefetcher", "PrefetchLoader"}
)


class Tensors(Question[Where]):
    """Answers for one program, remembered: `Tensors(program).where(expression)`."""

    open = UNKNOWN_PLACE
    plain = HOST

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        names = {program.method(call) for call in program.nodes(ast.Call)} | set(program.classes)
        self._loads_on_device = bool(names & _MOVED_FOR_YOU)

    def where(self, node: ast.AST | None) -> Where:
        return self.ask(node)

    def join(self, answers: Iterable[Where]) -> Where:
        """On the device if anything of it is; on the host only if all of it is."""
        found = list(answers)
        if DEVICE in found:
            return DEVICE
        return HOST if found and all(item == HOST for item in found) else UNKNOWN_PLACE

    def compared(self, node: ast.Compare) -> Where:
        plain = isinstance(node.ops[0], ast.Is | ast.IsNot | ast.In | ast.NotIn)
        return HOST if plain else self.any_of([node.left, *node.comparators])

    def round(self, over: ast.expr, target: ast.expr, name: str) -> Where:
        """Parts of a tensor are where it is; a loader's batches are on the host."""
        first = isinstance(target, ast.Tuple | ast.List) and name in names_in(target.elts[0])
        if first and self.program.method(over) in _KEYED:
            return HOST
        if any(self.program.method(call) in _OF_MODEL for call in self.program.within(over, ast.Call)):
            return DEVICE
        if self.where(over) == DEVICE:
            return DEVICE
        return UNKNOWN_PLACE if self._loads_on_device else HOST

    def handed(self, node: ast.Name) -> Where:
        function = self.program.enclosing_function(node)
        if function is not None and function.name == "training_step" and node.id in parameters(function):
            return HOST if node.id in ("self", "batch_idx", "batch_index", "idx", "optimizer_idx") else DEVICE
        return super().handed(node)

    def call(self, call: ast.Call) -> Where:
        program = self.program
        name, method = program.name(call), program.method(call)
        if isinstance(call.func, ast.Attribute) and not name.startswith(("torch.", "tf.", "numpy.")):
            own = self._own_method(call, call.func)
            if own is not None:
                return own
        if name in _HOST_CALLS or name.startswith(("numpy.", "sklearn.", "pandas.", "os.", "random.", "math.")):
            return HOST
        if program.facts.is_forward(call):
            return DEVICE
        if name in ("sum", "max", "min", "abs", "list", "dict", "tuple"):
            return self.any_of(arguments(call))
        if _FACTORIES.match(name):
            return self._made(call)
        if name.startswith("tf.") and not name.startswith(("tf.data.", "tf.keras.", "tf.io.")):
            return DEVICE
        function = program.function_of(call)
        if function is not None:
            found = self.returned(function)
            return found if found != UNKNOWN_PLACE or not _LOSS.search(method) else DEVICE
        if name.startswith("torch."):
            found = self.any_of(call.args)
            return DEVICE if found == UNKNOWN_PLACE and name.startswith("torch.nn.functional.") else found
        return self._by_callee(call, method)

    def _own_method(self, call: ast.Call, func: ast.Attribute) -> Where | None:
        """A method of a tensor; None where the callee must be looked at."""
        if func.attr in _TO_HOST:
            return HOST
        if func.attr == CUDA:
            return DEVICE
        if func.attr == "to":
            return self._moved(call)
        if func.attr == "result":
            return DEVICE if self.program.made_by(func.value).startswith("tf.keras.metrics") else UNKNOWN_PLACE
        if self.program.written(func.value) == "self" or self.program.function_of(call) is not None:
            return None
        if self.program.facts.is_network(func.value):
            return None
        found = self.where(func.value)
        return found if found != UNKNOWN_PLACE else None

    def _moved(self, call: ast.Call) -> Where:
        target = call.args[0] if call.args else self.program.argument(call, "device")
        word = self.program.value(target)
        if word == CPU or (isinstance(target, ast.Call) and target.args and self.program.value(target.args[0]) == CPU):
            return HOST
        if target is None or self.program.name(target).startswith("torch."):
            receiver = self.program.receiver(call)  # .to(torch.float32), .to(memory_format=…)
            return DEVICE if isinstance(target, ast.Call) else self.where(receiver)
        return DEVICE

    def _made(self, call: ast.Call) -> Where:
        given = self.program.argument(call, "device")
        if given is None:
            return HOST
        return HOST if self.program.value(given) == CPU else DEVICE

    def _by_callee(self, call: ast.Call, method: str) -> Where:
        """Criteria and losses, by how they were made or by name."""
        made = self.program.made_by(call.func)
        if made.startswith(("torch.nn.", "tf.keras.losses", "segmentation_models_pytorch.losses", "monai.losses")):
            return DEVICE
        return DEVICE if _LOSS.search(method) else UNKNOWN_PLACE

    def attribute(self, node: ast.Attribute) -> Where:
        if node.attr in _HOST_FACTS or self.program.name(node).startswith(("torch.", "tf.", "numpy.")):
            return HOST
        return self.named(node) if self.program.written(node.value) == "self" else self.ask(node.value)
