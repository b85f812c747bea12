"""channels_last where it does not help, or where a `.view` breaks on it.

`memory_format=torch.channels_last` keeps the channels of a pixel beside each other. That suits the convolutions of recent CUDA
cards in half precision, and some CPUs.

**On MPS** there is no such kernel to gain from: the layout is converted back and forth, and some operators have given wrong
results or errors on it. Leave it out there.

**Before `.view(n, -1)`.** The channels of a channels_last tensor are not where `.view` needs them to join channels and pixels
into one row: "view size is not compatible with input tensor's size and stride". It works in the default layout, so the error
comes with the switch. `.flatten(1)` and `.reshape(n, -1)` give the same values and copy where they must; this can be rewritten
mechanically (`--fix`).

**When this is fine.** After a global pooling to 1×1 pixels, after `.contiguous()`, and for `.view(n, c, -1)`, which joins only
pixels: none of these are reported. On CUDA and the CPU the layout itself is not reported: `unchoke tune` tries it on your
network.

Device: MPS for the layout; any for `.view`. Measured on CUDA only: channels_last alone changed float32 by less than 1 % there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.facts.devices import MPS, plain_device
from unchoke.code.program import Program
from unchoke.code.source import CodePlace
from unchoke.linting.rule import Edit, Hit, Rule

RULE = Rule(
    code="channels-last-unsafe",
    group="device",
    stage="network",
    title="channels_last on MPS, or before a .view",
    kind="risk",
    gain="no error, and no conversions back and forth",
    command="unchoke tune",
    fixable=True,
    devices=("mps",),
    frameworks=("torch",),
)
_JOINED_ALREADY = frozenset(
    {"contiguous", "flatten", "mean", "amax", "amin", "reshape", "view", "squeeze", "size", "permute", "transpose"}
)
_POOLS = ("AdaptiveAvgPool2d", "AdaptiveMaxPool2d", "adaptive_avg_pool2d", "adaptive_max_pool2d")
_WINDOWED = ("avg_pool2d", "AvgPool2d")
_POOL_NAMES = ("avgpool", "avg_pool", "global_pool", "gap", "pool", "pooling", "adaptive_pool", "maxpool")
_NOT_IMAGES = ("Linear", "Embedding", "LSTM", "GRU", "TransformerEncoder", "Conv1d", "Flatten")
_SINGLE = (1, (1, 1))


def check(program: Program) -> Iterator[Hit]:
    uses = [node for node in program.nodes(ast.Attribute, ast.Name) if program.name(node) == "torch.channels_last"]
    uses = [node for node in uses if isinstance(node.ctx, ast.Load)]
    if not uses:
        return
    if plain_device(program) == MPS:
        yield _on_mps(uses)
        return
    for call in program.nodes(ast.Call):
        if _joins(call) and _is_image(program, call):
            yield _before_view(program, call)


def _on_mps(uses: list[ast.Attribute | ast.Name]) -> Hit:
    more = f"; {len(uses)} places" if len(uses) > 1 else ""
    return Hit(
        uses[0],
        f"`memory_format=torch.channels_last`, but the device of this file is MPS, which gains nothing from that layout{more}",
        evidence={"places": len(uses)},
        fix="leave `memory_format` out on MPS; set it where the device is CUDA",
    )


def _before_view(program: Program, call: ast.Call) -> Hit:
    func = call.func
    assert isinstance(func, ast.Attribute)
    end = program.place(func)
    word = CodePlace(end.cell, end.end_line, end.end_column - len(func.attr), end.end_line, end.end_column)
    text = program.text(call)
    return Hit(
        call,
        f"`{text}` joins channels and pixels of a tensor that this file lays out as channels_last: an error there",
        evidence={"call": text},
        fix=f"write `{program.text(func.value)}.flatten(1)` or `{text.replace('.view(', '.reshape(', 1)}`",
        edit=Edit(word, "reshape"),
    )


def _joins(call: ast.Call) -> bool:
    """`x.view(n, -1)`, `x.view(-1, 512)`: channels and pixels become one."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "view" or call.keywords:
        return False
    shape = call.args[0].elts if len(call.args) == 1 and isinstance(call.args[0], ast.Tuple) else call.args
    return len(shape) == 2


def _is_image(program: Program, call: ast.Call) -> bool:
    """Is what is viewed a picture's features, straight from convolutions or from a tensor laid out as channels_last?"""
    receiver = program.receiver(call)
    function = program.enclosing_function(call)
    owner = program.enclosing_class(call)
    source = _source(program, receiver)
    if source is None or _is_laid_out(program, source):
        return source is not None
    if function is None or owner is None or not function.name.startswith("forward"):
        return False
    is_module = any(base.rpartition(".")[2] in ("Module", "LightningModule") for base in program.bases(owner))
    return is_module and _from_convolutions(program, owner, source)


def _source(program: Program, node: ast.expr | None) -> ast.expr | None:
    """The expression that made the tensor, through variables; a parameter stays itself."""
    for _ in range(6):
        if not isinstance(node, ast.Name):
            return node
        given = program.latest(node)
        if given is None or not program.is_before(given, node):
            return node
        node = given
    return node


def _is_laid_out(program: Program, source: ast.expr) -> bool:
    if not isinstance(source, ast.Call):
        return False
    given = program.argument(source, "memory_format")
    return given is not None and program.name(given) == "torch.channels_last"


def _from_convolutions(program: Program, owner: ast.ClassDef, source: ast.expr) -> bool:
    """A layer's output with more than one pixel, in a class that has 2-d convolutions."""
    if not isinstance(source, ast.Call) or _is_single_pixel(program, source):
        return False
    layer = program.method(source)
    if layer in _JOINED_ALREADY:
        return False
    if program.name(source).startswith("torch.") and not program.name(source).startswith("torch.nn.functional."):
        return False
    made = _layer(program, source)
    if made is not None and program.method(_last_layer(program, made)) in _NOT_IMAGES:
        return False
    return _has_convolutions(program, owner)


def _layer(program: Program, call: ast.Call) -> ast.Call | None:
    """The construction of `self.features` in `self.features(x)`."""
    name = program.written(call.func)
    found = [item for item in program.assigned(name, at=call) if isinstance(item, ast.Call)] if name.startswith("self.") else []
    return found[-1] if found else None


def _is_single_pixel(program: Program, call: ast.Call) -> bool:
    """Does it pool to one pixel, by its own arguments, its last layer, or its name where nothing else tells?"""
    if program.method(call) in _POOLS:
        return program.value(program.argument(call, "output_size", 1)) in _SINGLE
    if program.method(call) in _WINDOWED:
        return True  # as wide as what is left, more often than not
    made = _layer(program, call)
    if made is None:
        return program.method(call).lower() in _POOL_NAMES
    last = _last_layer(program, made)
    if program.method(last) in _POOLS:
        return program.value(program.argument(last, "output_size", 0)) in _SINGLE
    if program.method(last) in _WINDOWED:
        return True
    # A whole network of a library, with its own pooling at the end.
    return program.name(last).startswith(("timm.", "torchvision.models."))


def _last_layer(program: Program, made: ast.Call) -> ast.Call:
    """The last layer of a Sequential."""
    if program.method(made) == "Sequential" and made.args and isinstance(made.args[-1], ast.Call):
        return _last_layer(program, made.args[-1])
    return made


def _has_convolutions(program: Program, owner: ast.ClassDef) -> bool:
    """In the class, or in the functions and classes of this file that it makes itself of."""
    parts: list[ast.AST] = [owner, *program.reach(owner)]
    parts += [
        program.classes[name]
        for part in list(parts)
        for call in program.within(part, ast.Call)
        if (name := program.name(call)) in program.classes
    ]
    calls = program.calls_in(parts)
    return any(program.method(call).startswith(("Conv2d", "ConvTranspose2d", "DepthwiseConv2d")) for call in calls)
