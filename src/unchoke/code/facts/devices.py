"""Where a program says that it runs: every place that asks for CUDA, whether it looks first, and the one device it plainly uses.

In comes a program, out go nodes and a device word. Only decisions count: words that are only compared, defaults of options and
places under a condition on the device do not.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke.code.node_index import default_of, parameters, remembered, targets_of
from unchoke.code.program import Program

CUDA, MPS, CPU = "cuda", "mps", "cpu"
_WORD = re.compile(r"^(cuda|mps|cpu)(?::\d+)?$")
_TF_WORD = re.compile(r"^/?(?:job:[^/]*/)?(?:device:)?(gpu|cpu)(?::\d+)?$", re.IGNORECASE)
_ACCELERATORS = {"gpu": CUDA, "cuda": CUDA, "mps": MPS, "cpu": CPU}
_GUARDS = frozenset(
    {"is_available", "device_count", "list_physical_devices", "list_logical_devices", "is_gpu_available", "gpu_device_name",
     "is_built_with_cuda", "current_accelerator", "experimental_list_devices", "has_cuda", "list_local_devices",
     "num_cuda_devices", "auto_device_count"}
)  # fmt: skip
_SKIPS = re.compile(r"skip|requires?_|require[sA-Z]|only|needs?_", re.IGNORECASE)
_CARD = re.compile(r"cuda|gpu|nccl", re.IGNORECASE)
_NEEDS_CUDA = frozenset({"get_device_name", "get_device_properties", "get_device_capability", "set_device", "current_device"})
_OTHER_KINDS = (MPS, "xpu", "npu", "tpu", "hpu", "musa")
_TAKERS = frozenset({"to", "device", "set_default_device", "to_device", "move_to"})
_CONDITION = re.compile(r"cuda|gpu|device|accelerat|avail", re.IGNORECASE)
_OTHER_WORD = re.compile(r"device|(?:^|_)(?:mps|xpu|xla|npu|tpu)(?:_|$)", re.IGNORECASE)
_DEVICE_KIND = re.compile(r"cuda|gpu|accelerat|fabric|nccl", re.IGNORECASE)
_DEVICE_NAME = re.compile(r"dev|gpu|accel", re.IGNORECASE)
_ELSEWHERE = frozenset(
    {"prepare", "setup_dataloaders", "setup_module", "Accelerator", "Fabric", "Trainer", "to_fp16", "vision_learner"}
)


def asks_for_cuda(program: Program) -> list[ast.AST]:
    """Every place that takes CUDA for granted, in order."""
    found = [node for device, node in _decisions(program) if device == CUDA and not _is_asked_first(program, node)]
    return program.in_order(dict.fromkeys(found))


@remembered
def looks_for_cuda(program: Program) -> bool:
    """Does the program look anywhere whether there is such a device?"""
    for node in program.nodes(ast.Attribute, ast.Name):
        last = node.attr if isinstance(node, ast.Attribute) else node.id
        if last in _GUARDS or (last.endswith("_available") and _CONDITION.search(last[: -len("available")])):
            written = (program.name(node) + "." + program.written(node)).lower()
            if not any(kind in written for kind in _OTHER_KINDS):
                return True
        if last == "is_built" and CUDA in program.written(node):
            return True
    # `@requires_nccl()`, `@skip_if_lt_x_gpu(2)`, `pytest.mark.skipif(…cuda…)`, `self.skipTest("no GPU")`
    marks = [mark for node in program.nodes(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef) for mark in node.decorator_list]
    marks += program.calls_to("skip", "skipif", "skipIf", "skipUnless", "skipTest")
    return any(_SKIPS.search(text) and _CARD.search(text) for text in map(program.text, marks))


@remembered
def plain_device(program: Program) -> str:
    """The one kind of device the program states: CPU, or MPS (with or without the CPU to fall back on); empty for all others."""
    named = [item.value for name in ("device", "self.device", "DEVICE") for item in program.given(name)]
    given = [keyword.value for keyword in program.nodes(ast.keyword) if keyword.arg == "device"]
    is_open = any(not _is_stated(program, node) for node in (*named, *given))  # a branch, an option, a library's answer
    if is_open or mentions_cuda(program) or program.could_be_elsewhere(r"\bcuda\b|\bdevice\b"):
        return ""
    stated = {device for device, _ in _decisions(program, defaults=True)}
    return MPS if MPS in stated else CPU if CPU in stated else ""


def _is_stated(program: Program, node: ast.expr, depth: int = 0) -> bool:
    found = program.choices(node)
    return not found.unknown and all(_is_word(program, leaf, depth) for leaf in found.nodes)


def _is_word(program: Program, leaf: ast.expr, depth: int) -> bool:
    """`"cpu"`, `torch.device("cpu")`, None, and `x.device`, which is where something is already."""
    if isinstance(leaf, ast.Call) and program.method(leaf) == "device" and leaf.args:
        return depth < 5 and _is_stated(program, leaf.args[0], depth + 1)  # device = torch.device(device)
    if isinstance(leaf, ast.Constant):
        return leaf.value is None or bool(_device_of(leaf.value))
    return isinstance(leaf, ast.Attribute) and leaf.attr == "device" and program.written(leaf) != "self.device"


def runs_on_cpu(program: Program) -> bool:
    """Is the device plainly the CPU: stated, or no word of any device in a program that moves nothing?"""
    if plain_device(program):
        return plain_device(program) == CPU
    named = program.nodes(ast.Attribute, ast.Name, ast.arg, ast.keyword, ast.alias)
    moved = any(map(_is_device_word, named)) or any(_moves(program, call) for call in program.nodes(ast.Call))
    return not moved and not mentions_cuda(program) and not program.could_be_elsewhere(r"\bcuda\b")


@remembered
def mentions_cuda(program: Program) -> bool:
    """Is CUDA (or a graphics card for Lightning) named anywhere in the code, even in a comparison?"""
    for node in program.nodes(ast.Attribute, ast.Name, ast.arg, ast.keyword, ast.alias):
        if CUDA in _identifier(node).lower() or _identifier(node) == "gpus":
            return True
    for constant in program.nodes(ast.Constant):
        word = constant.value
        parent = program.parent(constant)
        asked = isinstance(parent, ast.keyword) and parent.arg == "accelerator" and word in ("gpu", "auto")
        if asked or _device_of(word) == CUDA:
            return True
    return False


def _identifier(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    return (node.name if isinstance(node, ast.alias) else getattr(node, "arg", None)) or ""


def _is_device_word(node: ast.AST) -> bool:
    name = _identifier(node)
    return bool(_OTHER_WORD.search(name)) or name in _ELSEWHERE


def _moves(program: Program, call: ast.Call) -> bool:
    """`x.to(somewhere)`, not `x.to(torch.float32)`."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "to" or not call.args:
        return False
    return not program.name(call.args[0]).startswith(("torch.", "numpy."))


def _device_of(word: object) -> str:
    """The device that a string names, or nothing."""
    if not isinstance(word, str):
        return ""
    found = _WORD.match(word)
    if found:
        return found.group(1)
    tf = _TF_WORD.match(word)
    return _ACCELERATORS[tf.group(1).lower()] if tf and ("/" in word or ":" in word) else ""


def _decisions(program: Program, *, defaults: bool = False) -> Iterator[tuple[str, ast.AST]]:
    """Devices that are decided on, each with its place; with `defaults` those of command-line options too."""
    for call in program.nodes(ast.Call):
        yield from _by_call(program, call)
        if defaults and program.method(call) == "add_argument":
            yield from _words(program.argument(call, "default"))
    for node in program.nodes(ast.Assign, ast.AnnAssign):
        for target in targets_of(node):
            parts, values = (getattr(side, "elts", [side]) for side in (target, node.value))
            pairs = zip(parts, values, strict=False) if len(parts) == len(values) else [(target, node.value)]
            yield from (found for part, value in pairs for found in _words(value) if _names_device(program, part))
    for table in program.nodes(ast.Dict):
        for key, value in zip(table.keys, table.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and "device" in key.value.lower():
                yield from _words(value)
    yield from _by_default(program)


def _names_device(program: Program, target: ast.expr) -> bool:
    """Is the variable a device by its name?"""
    return _DEVICE_NAME.search(program.written(target).rpartition(".")[2]) is not None


def _by_call(program: Program, call: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    method = call.func.attr if isinstance(call.func, ast.Attribute) else program.method(call)
    function = program.enclosing_function(call)
    offered = function is not None and function.name in (CUDA, "to", "apply", "_apply")  # `def cuda(self): … super().cuda()`
    if method == CUDA and isinstance(call.func, ast.Attribute) and not offered and program.name(call.func.value) != "super":
        yield from () if program.name(call).startswith("torch.") else ((CUDA, call),)
    if program.name(call).startswith("torch.cuda.") and method in _NEEDS_CUDA:
        yield CUDA, call
    if method in _TAKERS and call.args:
        yield from ((word, node) for word, node in _words(call.args[0]) if method != "to" or word != CPU)
    for keyword in call.keywords:
        if keyword.arg == "device":
            yield from ((word, node) for word, node in _words(keyword.value) if method != "to" or word != CPU)
        elif keyword.arg == "map_location":
            yield from ((word, node) for word, node in _words(keyword.value) if word == CUDA)
        elif keyword.arg in ("accelerator", "gpus") and method in ("Trainer", "Fabric"):
            given = program.value(keyword.value)
            if keyword.arg == "gpus" and isinstance(given, int) and given:
                yield CUDA, keyword.value
            elif isinstance(given, str) and given in _ACCELERATORS:
                yield _ACCELERATORS[given], keyword.value


def _words(node: ast.expr | None) -> Iterator[tuple[str, ast.AST]]:
    """The device words that an expression can be: itself, or either side of `a if … else b`."""
    if isinstance(node, ast.IfExp):
        yield from _words(node.body)
        yield from _words(node.orelse)
    elif isinstance(node, ast.Constant):
        word = _device_of(node.value)
        if word:
            yield word, node


def _by_default(program: Program) -> Iterator[tuple[str, ast.AST]]:
    """`def train(model, device="cuda")` where a call in this file relies on it."""
    for function in program.nodes(ast.FunctionDef, ast.AsyncFunctionDef):
        for name in parameters(function):
            default = default_of(function, name)
            if isinstance(default, ast.Constant) and _device_of(default.value):
                callers = program.callers(function)
                if any(program.argument_for(call, function, name) is None for call in callers):
                    yield _device_of(default.value), default


def _is_asked_first(program: Program, node: ast.AST) -> bool:
    """Is it one side of a choice, the default of an argument, or under a condition on the device?"""
    for above in program.ancestors(node):
        if isinstance(above, ast.IfExp | ast.BoolOp | ast.Compare):
            return True
        if isinstance(above, ast.arguments):
            return above is not program.parent(node)  # `device=torch.device("cuda")`; of plain words see `_by_default`
        if isinstance(above, ast.If | ast.While) and _CONDITION.search(program.text(above.test)):
            return True
        if isinstance(above, ast.Try) and above.handlers and program.index.holds_any(above.body, node):
            return True
        if isinstance(above, ast.ClassDef):
            return False
    return False


def torch_name(program: Program, at: ast.AST) -> str:
    """What the module torch is called at this place, empty if it was not imported before it as a whole."""
    nodes = [node for node in program.nodes(ast.Import) if isinstance(program.parent(node), ast.Module)]
    before = [alias for node in nodes if program.is_before(node, at) for alias in node.names]
    whole = (alias for alias in before if alias.name == "torch" or (alias.name.startswith("torch.") and alias.asname is None))
    return next((name for alias in whole if not program.given(name := alias.asname or "torch")), "")
