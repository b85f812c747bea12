"""Where a value lives as far as reading can tell: on the device (a tensor that work made there), on the host, or unknown.

In comes an expression of a training or evaluation loop, out goes DEVICE, HOST or UNKNOWN_PLACE. Follows variables in the order
of reading, unpacking, loops, `+=` and functions of the same file. What a loader hands over is on the host until it is moved.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Literal

from unchoke.code.facts.devices import CPU, CUDA
from unchoke.code.node_index import FunctionNode, arguments, names_in, parameters
from unchoke.code.program import Program

Where = Literal["device", "host", "unknown"]
DEVICE: Where = "device"
HOST: Where = "host"
UNKNOWN_PLACE: Where = "unknown"
_DEEPEST = 14
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
_WRAPPING = frozenset({"tqdm", "enumerate", "zip", "iter", "reversed", "list", "sorted", "track", "islice", "progress_bar"})
_KEYED = frozenset({"named_parameters", "named_buffers", "items", "named_modules", "named_children"})
_OF_MODEL = frozenset({"parameters", "named_parameters", "buffers", "named_buffers", "state_dict"})
_MOVED_FOR_YOU = frozenset(
    {"prepare", "setup_dataloaders", "DeviceDataLoader", "DevicePrefetcher", "DataPrefetcher", "PrefetchLoader"}
)


class Tensors:
    """Answers for one program, remembered: `Tensors(program).where(expression)`."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._known: dict[ast.AST, Where] = {}
        self._open: set[ast.AST] = set()
        self._bound: dict[tuple[ast.AST | None, str], list[tuple[int, ast.AST, ast.expr]]] = {}
        for statement in program.nodes(ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.AsyncFor, ast.NamedExpr):
            self._bind(statement)
        names = {program.method(call) for call in program.nodes(ast.Call)} | set(program.classes)
        self._loads_on_device = bool(names & _MOVED_FOR_YOU)

    def _bind(self, statement: ast.AST) -> None:
        value = statement.iter if isinstance(statement, ast.For | ast.AsyncFor) else getattr(statement, "value", None)
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        if value is None:
            return
        number, scope = self._program.index.number[statement], self._program.index.scope(statement)
        for target in targets:
            for part in ast.walk(target) if target is not None else ():
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                    self._bound.setdefault((scope, part.id), []).append((number, statement, value))

    def where(self, node: ast.AST | None) -> Where:
        if node is None or node in self._open or len(self._open) > _DEEPEST:
            return UNKNOWN_PLACE
        if node not in self._known:
            self._open.add(node)
            try:
                found = self._judged(node)
            finally:
                self._open.discard(node)
            if self._open and found == UNKNOWN_PLACE:
                return found
            self._known[node] = found
        return self._known[node]

    def _judged(self, node: ast.AST) -> Where:
        if isinstance(node, ast.Constant | ast.JoinedStr | ast.Lambda):
            return HOST
        if isinstance(node, ast.Name):
            return self._name(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Subscript | ast.Starred | ast.UnaryOp | ast.Await):
            return self.where(node.operand if isinstance(node, ast.UnaryOp) else node.value)
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot | ast.In | ast.NotIn):
            return HOST
        return self._together(_parts(node))

    def _together(self, nodes: Iterable[ast.AST]) -> Where:
        """On the device if anything of it is; on the host only if all of it is."""
        found = [self.where(node) for node in nodes]
        if DEVICE in found:
            return DEVICE
        return HOST if found and all(item == HOST for item in found) else UNKNOWN_PLACE

    # Names

    def _name(self, node: ast.Name) -> Where:
        comprehension = self._comprehension_of(node)
        if comprehension is not None:
            return self._looped(comprehension.iter, comprehension.target, node.id)
        bound = self._latest(node)
        if bound is None:
            return self._parameter(node)
        _, statement, value = bound
        if isinstance(statement, ast.For | ast.AsyncFor):
            return self._looped(value, statement.target, node.id)
        if isinstance(statement, ast.AugAssign):
            return DEVICE if self.where(value) == DEVICE else self._before_sum(node, statement)
        part = self._part(statement, node.id)
        return self.where(part) if part is not None else self._part_of_call(statement, node.id, value)

    def _before_sum(self, node: ast.Name, statement: ast.AugAssign) -> Where:
        """`x += host`: as it was before."""
        earlier = [item for item in self._bindings(node) if item[0] < self._program.index.number[statement]]
        sums = [item for item in earlier if isinstance(item[1], ast.AugAssign)]
        if any(self.where(item[2]) == DEVICE for item in sums):
            return DEVICE
        plain = [item for item in earlier if not isinstance(item[1], ast.AugAssign)]
        if not plain:
            return UNKNOWN_PLACE
        part = self._part(plain[-1][1], node.id)
        return self._together([part or plain[-1][2], statement.value])

    def _bindings(self, node: ast.Name) -> list[tuple[int, ast.AST, ast.expr]]:
        scope: ast.AST | None = self._program.index.scope(node)
        while True:
            found = self._bound.get((scope, node.id))
            if found:
                return sorted(found, key=lambda item: item[0])
            if scope is None or (isinstance(scope, FunctionNode) and node.id in parameters(scope)):
                return []
            scope = self._program.index.scope(scope)

    def _latest(self, node: ast.Name) -> tuple[int, ast.AST, ast.expr] | None:
        """The last binding before this place: a loop round it counts, an assignment it stands in does not."""
        number = self._program.index.number[node]
        found = self._bindings(node)
        before = []
        for item in found:
            looped = isinstance(item[1], ast.For | ast.AsyncFor)
            inside = item[0] < number <= self._program.index.stop(item[1])
            if item[0] < number and (looped or not inside):
                before.append(item)
        scope = self._program.index.scope(node)
        if found and not before and self._is_parameter(node, scope):
            return None
        return before[-1] if before else (found[-1] if found and not self._inside_all(found, number) else None)

    def _inside_all(self, found: list[tuple[int, ast.AST, ast.expr]], number: int) -> bool:
        return all(item[0] < number <= self._program.index.stop(item[1]) for item in found)

    def _is_parameter(self, node: ast.Name, scope: ast.AST | None) -> bool:
        return isinstance(scope, FunctionNode) and node.id in parameters(scope)

    def _part(self, statement: ast.AST, name: str) -> ast.expr | None:
        """The expression of `a, b = x, y` that is given to `name`; that of `a, b = pair` is the pair itself."""
        value: ast.expr | None = getattr(statement, "value", None)
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        for target in targets:
            if not isinstance(target, ast.Tuple | ast.List):
                continue
            if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
                pairs = zip(target.elts, value.elts, strict=True)
                return next((given for item, given in pairs if isinstance(item, ast.Name) and item.id == name), value)
            if isinstance(value, ast.Call):
                return None
        return value

    def _part_of_call(self, statement: ast.AST, name: str, value: ast.expr) -> Where:
        """`a, b = f(x)`: what `f` returns at that place."""
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if not isinstance(value, ast.Call) or not isinstance(target, ast.Tuple | ast.List):
            return self.where(value)
        names = [item.id if isinstance(item, ast.Name) else "" for item in target.elts]
        function = None if self._program.facts.is_forward(value) else self._program.function_of(value)
        if function is None or name not in names:
            return self.where(value)
        returned = [item.value for item in self._returns(function)]
        place = names.index(name)
        parts = [
            item.elts[place] if isinstance(item, ast.Tuple) and place < len(item.elts) else item for item in returned if item
        ]
        return self._together(parts)

    def _comprehension_of(self, node: ast.Name) -> ast.comprehension | None:
        for above in self._program.ancestors(node):
            if isinstance(above, ast.stmt):
                return None
            for generator in getattr(above, "generators", ()):
                if node.id in names_in(generator.target):
                    holds = self._program.index.holds(generator.iter, node)
                    return None if holds else generator
        return None

    def _looped(self, over: ast.expr, target: ast.expr, name: str) -> Where:
        """What a loop hands out: parts of a tensor are where it is; a loader's batches are on the host."""
        method = self._program.method(over)
        parts = target.elts if isinstance(target, ast.Tuple | ast.List) else []
        mine = [place for place, part in enumerate(parts) if _holds_name(part, name)]
        if isinstance(over, ast.Call) and over.args and method in _WRAPPING:
            if method == "zip" and mine and mine[0] < len(over.args):
                return self._looped(over.args[mine[0]], parts[mine[0]], name)
            if method == "enumerate" and mine:
                return HOST if mine[0] == 0 else self._looped(over.args[0], parts[1], name)
            return self._looped(over.args[0], target, name)
        if method in _KEYED and mine and mine[0] == 0:
            return HOST
        if any(self._program.method(call) in _OF_MODEL for call in self._program.within(over, ast.Call)):
            return DEVICE
        if self.where(over) == DEVICE:
            return DEVICE
        return UNKNOWN_PLACE if self._loads_on_device else HOST

    def _parameter(self, node: ast.Name) -> Where:
        function = self._program.enclosing_function(node)
        if function is None or node.id not in parameters(function):
            return UNKNOWN_PLACE
        if function.name == "training_step":
            return HOST if node.id in ("self", "batch_idx", "batch_index", "idx", "optimizer_idx") else DEVICE
        calls = self._program.callers(function)[:4]
        given = [self._program.argument_for(call, function, node.id) for call in calls]
        return self._together(item for item in given if item is not None) if all(given) else UNKNOWN_PLACE

    # Calls and attributes

    def _call(self, call: ast.Call) -> Where:
        program = self._program
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
            return self._together(arguments(call))
        if _FACTORIES.match(name):
            return self._made(call)
        if name.startswith("tf.") and not name.startswith(("tf.data.", "tf.keras.", "tf.io.")):
            return DEVICE
        function = program.function_of(call)
        if function is not None:
            found = self._together(item.value for item in self._returns(function) if item.value is not None)
            return found if found != UNKNOWN_PLACE or not _LOSS.search(method) else DEVICE
        if name.startswith("torch."):
            found = self._together(call.args)
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
            return DEVICE if self._program.made_by(func.value).startswith("tf.keras.metrics") else UNKNOWN_PLACE
        if self._program.written(func.value) == "self" or self._program.function_of(call) is not None:
            return None
        if self._program.facts.is_network(func.value):
            return None
        found = self.where(func.value)
        return found if found != UNKNOWN_PLACE else None

    def _moved(self, call: ast.Call) -> Where:
        target = call.args[0] if call.args else self._program.argument(call, "device")
        word = self._program.value(target)
        if word == CPU or (isinstance(target, ast.Call) and target.args and self._program.value(target.args[0]) == CPU):
            return HOST
        if target is None or self._program.name(target).startswith("torch."):
            receiver = self._program.receiver(call)  # .to(torch.float32), .to(memory_format=…)
            return DEVICE if isinstance(target, ast.Call) else self.where(receiver)
        return DEVICE

    def _made(self, call: ast.Call) -> Where:
        given = self._program.argument(call, "device")
        if given is None:
            return HOST
        return HOST if self._program.value(given) == CPU else DEVICE

    def _by_callee(self, call: ast.Call, method: str) -> Where:
        """Criteria and losses, by how they were made or by name."""
        made = self._program.made_by(call.func)
        if made.startswith(("torch.nn.", "tf.keras.losses", "segmentation_models_pytorch.losses", "monai.losses")):
            return DEVICE
        return DEVICE if _LOSS.search(method) else UNKNOWN_PLACE

    def _returns(self, function: FunctionNode) -> Iterator[ast.Return]:
        for item in self._program.within(function, ast.Return):
            if self._program.enclosing_scope(item) is function:
                yield item

    def _attribute(self, node: ast.Attribute) -> Where:
        if node.attr in _HOST_FACTS or self._program.name(node).startswith(("torch.", "tf.", "numpy.")):
            return HOST
        if self._program.written(node.value) == "self":
            given = self._program.latest(node)
            return self.where(given) if given is not None else UNKNOWN_PLACE
        return self.where(node.value)


def _holds_name(node: ast.AST, name: str) -> bool:
    return name in names_in(node)


def _parts(node: ast.AST) -> list[ast.AST]:
    """The expressions a compound one is made of, as far as they carry its value."""
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.Dict):
        return list(node.values)
    if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
        return [node.elt]
    if isinstance(node, ast.DictComp):
        return [node.value]
    return [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
