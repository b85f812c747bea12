"""Proofs that an edit changes nothing but time and memory. What is not proven here is a suggestion in words, never an edit.

In come a program and the place an edit would go to, out goes yes or no. Yes means: every call that the edit could reach is in the
file, or is one of a library of which it is known, and nothing that is printed, returned or kept would be another. Code that
cannot be seen (a model from another file, a parameter nobody in the file gives, a checkpoint that somebody else wrote) is no.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator

from unchoke.code.answers import remembered
from unchoke.code.facts.asking import Question
from unchoke.code.facts.loops import step_kind
from unchoke.code.facts.origins import root
from unchoke.code.node_index import FunctionNode, parameters, targets_of
from unchoke.code.program import Program

_DEEPEST = 5
_RUN_BY_CALL = ("forward", "__call__", "call")
_NUMBER_CALLS = frozenset({"float", "int", "len", "bool", "str", "repr", "range"})
_OF_NUMBERS = frozenset({"sum", "max", "min", "abs", "round", "sorted", "list", "tuple", "dict", "zip", "divmod", "print"})
_NUMBER_METHODS = frozenset({"item", "tolist", "size", "numel", "dim", "nelement", "format"})
_QUIET = frozenset(vars(builtins)) - {"eval", "exec", "__import__", "getattr", "setattr", "vars", "globals", "locals", "compile"}
# Libraries whose functions neither ask for gradients nor look whether they are on.
_QUIET_LIBRARIES = frozenset(
    {"torch", "torchvision", "numpy", "sklearn", "pandas", "tqdm", "PIL", "cv2", "math", "time", "os", "random", "json", "csv",
     "pathlib", "collections", "itertools", "sys", "logging"}
)  # fmt: skip
# Kernels are chosen by whether gradients are on, in these: numbers may differ in their last digits.
_BY_GRADIENT = re.compile(
    r"grad|attention|transformer|multihead|vit|swin|deit|checkpoint|compile|\bjit\b|hook|hub|\bfunc\.|vmap|jacobian|hessian"
    r"|torch\.(?:load|save|rand|normal|bernoulli|multinomial|manual_seed|cuda|utils\.data)|distributed|DataParallel",
    re.IGNORECASE,
)
_CONVOLUTIONAL = re.compile(
    r"^(?:\w+\.)?(?:resnet|resnext|wide_resnet|efficientnet|mobilenet|convnext|regnet|densenet|vgg|squeezenet)"
)
_TENSOR_METHODS = """
    to cuda cpu float double half long int bool item tolist numpy detach clone contiguous eval train argmax argmin max min sum
    mean std eq ne gt lt ge le any all squeeze unsqueeze view reshape permute transpose flatten size dim numel softmax
    log_softmax sigmoid relu exp log sqrt pow abs round clamp topk expand repeat type add sub mul div matmul mm t append
    extend items keys values get format join split strip lower upper startswith endswith replace rstrip count index
    write flush set_postfix set_description sort astype choice copy integers convert resize crop
"""
_ASKS = frozenset(
    {"backward", "grad", "requires_grad", "requires_grad_", "retain_grad", "autograd", "enable_grad", "is_grad_enabled",
     "grad_fn", "is_leaf", "register_hook", "register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook",
     "register_backward_hook", "is_inference", "get_extra_state"}
)  # fmt: skip
_STILL_TENSORS = frozenset({"mean", "sum", "cpu", "float", "max", "min", "sqrt", "abs"})
_OF_TENSORS = frozenset({"sum", "max", "min", "torch.stack", "torch.tensor", "torch.cat"})
_ANSWERED = (
    ast.Constant | ast.Name | ast.Call | ast.Attribute | ast.Compare | ast.Subscript | ast.Starred | ast.BinOp | ast.UnaryOp
    | ast.BoolOp | ast.IfExp | ast.Tuple | ast.List | ast.Dict | ast.Set
)  # fmt: skip
_FILLING = frozenset({"append", "extend", "add", "update", "insert", "setdefault"})
_WRAPPING = frozenset({"tqdm", "enumerate", "zip", "iter", "trange", "reversed", "sorted", "list"})


# Gradients switched off


def is_same_without_gradients(program: Program, function: FunctionNode) -> bool:
    """Does all that runs in this function, and all that leaves it, stay what it is under `torch.no_grad()`?"""
    parts = [function, *program.reach(function)]
    if not _is_only_called_here(program, function) or any(_asks_for_gradients(program, part) for part in parts):
        return False
    returns = [item.value for item in program.within(function, ast.Return) if item.value is not None]
    if not all(is_number(program, value) for value in returns):
        return False
    return all(_keeps_nothing(program, part) and _is_quiet_code(program, part) for part in parts)


def _is_only_called_here(program: Program, function: FunctionNode) -> bool:
    """Is it called in this file, and handed to nobody who might call it with something else?"""
    named: list[ast.Name | ast.Attribute] = [*program.names(function.name), *program.attributes(function.name)]
    callers = program.callers(function)
    return bool(callers) and all(any(node is call.func for call in callers) for node in named)


def _keeps_nothing(program: Program, part: FunctionNode) -> bool:
    """Is nothing put into what others hold: an attribute, an item or a list that this function did not make?"""
    own = {node.id for node in program.within(part, ast.Name) if isinstance(node.ctx, ast.Store)} - set(parameters(part))
    stored = [node for node in program.within(part, ast.Attribute, ast.Subscript) if isinstance(node.ctx, ast.Store)]
    filled = [call.func for call in program.within(part, ast.Call) if program.method(call) in _FILLING]
    return all(root(node) in own for node in (*stored, *filled))


def _asks_for_gradients(program: Program, part: ast.AST) -> bool:
    named = program.within(part, ast.Attribute, ast.keyword)
    if any((node.attr if isinstance(node, ast.Attribute) else node.arg) in _ASKS for node in named):
        return True
    return any(step_kind(program, call) for call in program.within(part, ast.Call))


def _is_quiet_code(program: Program, part: ast.AST) -> bool:
    """Is every call in it known, everything shown a number, and every loop over what can be seen?"""
    if any(program.within(part, ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal)):
        return False
    loops = [loop.iter for loop in program.within(part, ast.For, ast.comprehension)]
    return all(_is_known(program, call) for call in program.within(part, ast.Call)) and all(
        _is_seen_source(program, source) for source in loops
    )


def _is_known(program: Program, call: ast.Call, depth: int = 0) -> bool:
    function, name = program.function_of(call), program.name(call)
    if function is not None and function.name not in _RUN_BY_CALL:
        return True  # part of what is reached, and read as such
    if _shows(program, call):
        return all(is_number(program, given) for given in call.args)
    if isinstance(call.func, ast.Name) and name == call.func.id and name in _QUIET:
        return True
    if "." in name and not name.startswith("?."):
        return name.partition(".")[0] in _QUIET_LIBRARIES and not _BY_GRADIENT.search(name)
    if isinstance(call.func, ast.Attribute) and name.startswith("?.") and call.func.attr in _TENSOR_METHODS.split():
        return True
    return _is_seen_network(program, call.func, depth)


def _shows(program: Program, call: ast.Call) -> bool:
    return program.name(call) in ("print", "str", "repr") or program.method(call) in ("write", "set_postfix", "set_description")


def _is_seen_network(program: Program, node: ast.expr, depth: int = 0) -> bool:
    """A network or loss of a library whose kernels do not depend on gradients, or of a class of this file made of such."""
    if depth > _DEEPEST:
        return False
    given = _given_for(program, node)
    if given is not None:
        return bool(given) and all(_is_seen_network(program, item, depth + 1) for item in given)
    if _library_network(program, node):
        return True
    owner = program.assigned_class(node)
    forward = next((method for name, method in program.methods(owner).items() if name in _RUN_BY_CALL), None) if owner else None
    if owner is None or forward is None or _asks_for_gradients(program, owner) or program.reach(forward):
        return False
    return all(_is_known(program, call, depth + 1) for call in program.within(forward, ast.Call))


def _library_network(program: Program, node: ast.expr) -> bool:
    made = program.made_by(node)
    if not all(_is_plain_layer(program, part) for part in _parts_given(program, node)):
        return False
    if made.startswith("torchvision.models."):
        return bool(_CONVOLUTIONAL.match(made.rpartition(".")[2]))
    call = program.construction(node)
    if made == "timm.create_model":
        kind = program.value(call.args[0]) if call is not None and call.args else None
        return isinstance(kind, str) and bool(_CONVOLUTIONAL.match(kind))
    return call is not None and _is_plain_layer(program, call)


def _parts_given(program: Program, node: ast.expr) -> Iterator[ast.expr]:
    """What the file puts into a network of a library: `model.fc = nn.Linear(…)`."""
    name = program.written(node)
    for statement in program.nodes(ast.Assign) if name else ():
        if any(program.written(target).startswith(f"{name}.") for target in statement.targets):
            yield statement.value


def _is_plain_layer(program: Program, node: ast.expr) -> bool:
    """A layer or loss of torch whose kernel is the same with and without gradients, or a row of such."""
    name = program.name(node) if isinstance(node, ast.Call) else ""
    if not isinstance(node, ast.Call) or not name.startswith("torch.nn.") or _BY_GRADIENT.search(name):
        return False
    return not name.endswith("Sequential") or all(_is_plain_layer(program, item) for item in node.args)


def _given_for(program: Program, node: ast.expr) -> list[ast.expr] | None:
    """What the calls in the file give for a parameter: nothing where one of them cannot be read; None where it is none."""
    function = program.enclosing_function(node)
    if not isinstance(node, ast.Name) or function is None or node.id not in parameters(function):
        return None
    stored = [part for part in program.within(function, ast.Name) if part.id == node.id and isinstance(part.ctx, ast.Store)]
    given = program.given_by_callers(node.id, node)
    return [] if stored or len(given) != len(program.callers(function)) else given


def _is_seen_source(program: Program, node: ast.expr, depth: int = 0) -> bool:
    """What a loop goes over: numbers, lists, or a loader whose data set is the library's or of this file."""
    if depth > _DEEPEST:
        return False
    if isinstance(node, ast.Constant | ast.List | ast.Tuple | ast.Dict | ast.ListComp):
        return True
    given = _given_for(program, node)
    if given is not None:
        return bool(given) and all(_is_seen_source(program, item, depth + 1) for item in given)
    if isinstance(node, ast.Call):
        name, method = program.name(node), program.method(node)
        if name == "range" or method in ("items", "keys", "values", "split"):
            return True
        if method in _WRAPPING and node.args:
            return all(_is_seen_source(program, item, depth + 1) for item in node.args)
        if name == "torch.utils.data.DataLoader":
            return _is_seen_dataset(program, program.argument(node, "dataset", 0)) and program.keyword(node, "collate_fn") is None
        return False
    made = program.latest(node)
    return made is not None and made is not node and _is_seen_source(program, made, depth + 1)


def _is_seen_dataset(program: Program, node: ast.expr | None) -> bool:
    if node is None:
        return False
    if program.made_by(node).startswith(("torch.utils.data.TensorDataset", "torchvision.datasets.")):
        call = program.construction(node)
        options = [item for item in call.keywords if "transform" in (item.arg or "transform")] if call is not None else []
        return all(program.made_by(item.value).startswith("torchvision.transforms.") for item in options)
    owner = program.assigned_class(node)
    read = program.methods(owner).get("__getitem__") if owner is not None else None
    return read is not None and all(
        program.function_of(call) is not None or _is_known(program, call) for call in program.within(read, ast.Call)
    )


# Numbers


class _Numbers(Question[bool]):
    """Is it a plain number or text, or a list of them: nothing that could carry a graph and show it?"""

    open = False
    plain = True

    def join(self, answers: Iterable[bool]) -> bool:
        return all(answers)

    def _answer(self, node: ast.AST) -> bool:
        if isinstance(node, ast.JoinedStr):
            return self.any_of(part.value for part in node.values if isinstance(part, ast.FormattedValue))
        known = isinstance(node, _ANSWERED)
        return known and super()._answer(node)

    def call(self, call: ast.Call) -> bool:
        name = self.program.name(call)
        if name in _NUMBER_CALLS or name.startswith(("time.", "math.", "sklearn.metrics.")):
            return True
        if name in _OF_NUMBERS:
            return self.any_of(call.args)
        return isinstance(call.func, ast.Attribute) and call.func.attr in _NUMBER_METHODS

    def attribute(self, node: ast.Attribute) -> bool:
        return node.attr in ("shape", "ndim", "dtype")

    def compared(self, node: ast.Compare) -> bool:
        return self.any_of([node.left, *node.comparators])

    def named(self, node: ast.Name | ast.Attribute) -> bool:
        """With what is put into it in its own scope."""
        scope = self.program.enclosing_scope(node)
        added = [
            value for at, value in self.program.added_to(self.program.written(node)) if self.program.enclosing_scope(at) is scope
        ]
        return super().named(node) and self.any_of(added)

    def round(self, over: ast.expr, _target: ast.expr, _name: str) -> bool:
        return self.program.method(over) in ("range", "trange")


_numbers = remembered(_Numbers)


def is_number(program: Program, node: ast.AST | None) -> bool:
    """A plain number or text, or a list of them; also where nothing is given."""
    return node is None or _numbers(program).ask(node)


# A graph let go


def shows_no_graph(program: Program, name: str, at: ast.AST, followed: frozenset[str] = frozenset()) -> bool:
    """Does every use of this variable end in a plain number, so that nobody could tell whether it has a graph?"""
    scope = program.enclosing_scope(at)
    if name in followed:
        return True
    if not name or "." in name or len(followed) > _DEEPEST or (scope is not None and name in parameters(scope)):
        return False
    uses = program.names(name)
    if any(program.enclosing_scope(node) is not scope for node in uses):
        return False
    return all(_ends_in_number(program, node, followed | {name}) for node in uses if isinstance(node.ctx, ast.Load))


def _ends_in_number(program: Program, node: ast.AST, followed: frozenset[str]) -> bool:
    below = node
    for above in program.ancestors(node):
        if isinstance(above, ast.Call):
            ends = _called_to_number(program, above, below)
            if ends is not None:
                return ends
        elif isinstance(above, ast.FormattedValue):
            return above.conversion == -1 and above.format_spec is not None
        elif isinstance(above, ast.Assign | ast.AugAssign):
            targets = targets_of(above)
            name = targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) else ""
            return bool(name) and shows_no_graph(program, name, above, followed)
        elif not isinstance(above, ast.BinOp | ast.UnaryOp | ast.Attribute | ast.Subscript | ast.List | ast.Tuple):
            return False
        below = above
    return False


def _called_to_number(program: Program, call: ast.Call, below: ast.AST) -> bool | None:
    """True where the call makes a number of it, None where it makes another tensor, False where it may show a graph."""
    if below is call.func:
        method = program.method(call)
        if method in ("append", "clear"):
            return isinstance(program.parent(call), ast.Expr)
        return True if method in ("item", "detach") else (None if method in _STILL_TENSORS else False)
    name = program.name(call)
    return True if name in ("float", "int", "len") else (None if name in _OF_TENSORS else False)


# A checkpoint of one's own


def is_own_state_dict(program: Program, load: ast.Call) -> bool:
    """Was the file that is loaded here written by this very program, each time with nothing but a network's `state_dict()`?"""
    if program.unread or any(program.attributes("get_extra_state")) or "get_extra_state" in program.functions or not load.args:
        return False
    path = _spelled(program, load.args[0])
    saves = [call for call in program.calls_to("save") if program.name(call) == "torch.save" and len(call.args) == 2]
    if not path or any(program.name(call) == "torch.save" and len(call.args) != 2 for call in program.calls_to("save")):
        return False
    own = [call for call in saves if _spelled(program, call.args[1]) == path]
    unknown = [call for call in saves if not _spelled(program, call.args[1])]
    return bool(own) and not unknown and all(_is_state_of_network(program, call.args[0]) for call in own)


def _spelled(program: Program, node: ast.expr) -> str:
    value = program.value(node)
    return value if isinstance(value, str) else ""


def _is_state_of_network(program: Program, node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or program.method(node) != "state_dict" or node.args or node.keywords:
        return False
    network = program.receiver(node)
    if network is None:
        return False
    given = _given_for(program, network)
    return all(_is_module(program, item) for item in given) and bool(given) if given is not None else _is_module(program, network)


def _is_module(program: Program, node: ast.expr) -> bool:
    made = program.made_by(node)
    if made.startswith(("torch.nn.", "torchvision.models.")) or made == "timm.create_model":
        return True
    owner = program.assigned_class(node)
    return owner is not None and any(base.rpartition(".")[2] == "Module" for base in program.bases(owner))
