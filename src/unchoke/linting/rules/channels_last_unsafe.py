"""channels_last where it does not help, or where a `.view` breaks on it.

`memory_format=torch.channels_last` keeps a pixel's channels together; this suits convolutions of recent CUDA cards, some CPUs.

**On MPS** there is no such kernel to gain from: the layout is converted back and forth, and some operators have given wrong
results or errors on it. Leave it out there.

**Before `.view(n, -1)`.** The channels of a channels_last tensor are not where `.view` needs them to join channels and pixels
into one row: "view size is not compatible with input tensor's size and stride". It works in the default layout, so the error
comes with the switch. `.flatten(1)` and `.reshape(n, -1)` give the same values and copy where they must; this can be rewritten
mechanically (`--fix`).

**When this is fine.** After a global pooling to 1×1 pixels, after `.contiguous()`, and for `.view(n, c, -1)`, which joins only
pixels: none of these are reported. On CUDA and the CPU the layout itself is not reported: `unchoke tune` tries it on your
network. Measured on CUDA only: channels_last alone changed float32 by less than 1 % there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.facts.devices import MPS, plain_device
from unchoke.code.program import Program
from unchoke.code.source import CodePlace
from unchoke.linting.rule import Edit, Hit, Rule, at_method

RULE = Rule(
    group="device",
    stage="network",
    title="channels_last on MPS, or before a .view",
    kind="nit",
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
    uses = [*program.attributes("channels_last"), *program.names("channels_last")]
    uses = [node for node in uses if program.name(node) == "torch.channels_last"]
    if uses and plain_device(program) == MPS:
        more = f"; {len(uses)} places" if len(uses) > 1 else ""
        yield Hit(
            program.in_order(uses)[0],
            "`memory_format=torch.channels_last`, but the device of this file is MPS, which gains nothing from that layout"
            + more,
            evidence={"places": len(uses)},
            fix="leave `memory_format` out on MPS; set it where the device is CUDA",
        )
    elif uses:
        yield from (_before_view(program, call) for call in program.calls_to("view") if _is_image(program, call))


def _before_view(program: Program, call: ast.Call) -> Hit:
    text, receiver, place = program.text(call), program.receiver(call) or call, at_method(program, call)
    word = CodePlace(place.cell, place.line, place.column, place.line, place.column + len("view"))
    return Hit(
        call,
        f"`{text}` joins channels and pixels of a tensor that this file lays out as channels_last: an error there",
        evidence={"call": text},
        fix=f"write `{program.text(receiver)}.flatten(1)` or `{text.replace('.view(', '.reshape(', 1)}`",
        edit=Edit(word, "reshape"),
    )


def _is_image(program: Program, call: ast.Call) -> bool:
    """Does `x.view(n, -1)` make one of channels and pixels, straight from convolutions or laid out as channels_last?"""
    shape = call.args[0].elts if len(call.args) == 1 and isinstance(call.args[0], ast.Tuple) else call.args
    source = next(iter(program.choices(program.receiver(call)).nodes), None)
    if len(shape) != 2 or call.keywords or not isinstance(source, ast.Call):
        return False
    if program.name(program.argument(source, "memory_format")) == "torch.channels_last":
        return True
    function, owner = program.enclosing_function(call), program.enclosing_class(call)
    if function is None or owner is None or not function.name.startswith("forward"):
        return False
    is_module = any(base.rpartition(".")[2] in ("Module", "LightningModule") for base in program.bases(owner))
    return is_module and _from_convolutions(program, source)


def _from_convolutions(program: Program, source: ast.Call) -> bool:
    """A layer's output with more than one pixel, in a file that has 2-d convolutions."""
    name, last = program.name(source), _last_layer(program, source)
    if name.startswith("torch.") and not name.startswith("torch.nn.functional."):
        return False
    if program.method(source) in _JOINED_ALREADY or program.method(last) in _NOT_IMAGES or _is_single_pixel(program, last):
        return False
    return bool(program.calls_to("Conv2d", "ConvTranspose2d", "DepthwiseConv2d"))


def _last_layer(program: Program, call: ast.Call) -> ast.Call:
    """What made `self.features` in `self.features(x)`, of a Sequential its last layer; the call itself where that is unknown."""
    name = program.written(call.func)
    found = [item for item in program.assigned(name, at=call) if isinstance(item, ast.Call)] if name.startswith("self.") else []
    made = found[-1] if found else call
    while program.method(made) == "Sequential" and made.args and isinstance(made.args[-1], ast.Call):
        made = made.args[-1]
    return made


def _is_single_pixel(program: Program, last: ast.Call) -> bool:
    """Does it pool to one pixel, by its arguments, by its name where nothing else tells, or as whole networks do at their end?"""
    method = program.method(last)
    if method in _POOLS:
        return program.value(program.argument(last, "output_size", 1 if method.islower() else 0)) in _SINGLE
    if method in _WINDOWED or method.lower() in _POOL_NAMES:
        return True  # as wide as what is left, more often than not
    return program.name(last).startswith(("timm.", "torchvision.models."))
