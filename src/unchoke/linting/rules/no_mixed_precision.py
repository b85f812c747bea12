"""A large network trained in float32 on a graphics card.

Cards of the last years multiply half-precision numbers several times as fast as float32 and move half the bytes.
Convolutional networks and transformers commonly train 1.5 to 3 times as fast with automatic mixed precision, in little more
than half the memory; the weights stay in float32.

**Write instead.**

    with torch.autocast("cuda", dtype=torch.bfloat16):           # float16 with a GradScaler on cards before Ampere
        loss = criterion(model(images), targets)
    loss.backward()

Lightning: `Trainer(precision="bf16-mixed")`. Hugging Face: `bf16=True` or `fp16=True`. fastai: `learn.to_fp16()`. Keras:
`keras.mixed_precision.set_global_policy("mixed_float16")`, and the last layer in float32.

**When this is fine.** On the CPU, on cards without such units (before Volta), for small networks, and where a loss of your
own needs the precision. `unchoke tune` tries it on your network and says what it brings, and whether the numbers stay.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke.code.constant_values import is_number
from unchoke.code.facts.devices import CUDA, asks_for_cuda, mentions_cuda, plain_device
from unchoke.code.facts.epochs import large_network, network_named
from unchoke.code.facts.freezing import freezes
from unchoke.code.facts.origins import hides_code
from unchoke.code.program import Program
from unchoke.core.findings import Kind
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    group="device",
    stage="step",
    title="a large network trained in float32 on a graphics card",
    gain="commonly 1.5 to 3 times the steps",
    command="unchoke tune",
    devices=("cuda",),
)
_HALF = re.compile(
    r"autocast|GradScaler|\bamp\b|mixed_precision|mixed_float16|mixed_bfloat16|set_global_policy|fp16|bf16|bfloat16|float16|\.half\(|"
    r"set_float32_matmul_precision|allow_tf32|apex|precision\s*=\s*[^\s3]|deepspeed|to_fp16|16-mixed"
)
_CARDS = frozenset({"GPU", "/GPU:0", "/gpu:0", "/device:GPU:0", "GPU:0"})
_MANY_EPOCHS = 10
_AUTOCAST = 'wrap forward and loss in `with torch.autocast("cuda", dtype=torch.bfloat16):` and leave `backward()` outside'
_FIXES = {
    "keras": '`keras.mixed_precision.set_global_policy("mixed_float16")` before the model is built, '
    'and `dtype="float32"` on its last layer',
    "lightning": 'give the trainer `precision="bf16-mixed"` (or `"16-mixed"` on cards before Ampere)',
    "hf": "give `TrainingArguments` `bf16=True` (or `fp16=True` on cards before Ampere)",
    "fastai": "call `.to_fp16()` on the learner",
}


def check(program: Program) -> Iterator[Hit]:
    """One hit for a file: where the network is made."""
    made = large_network(program)
    if made is None or plain_device(program) or hides_code(program):
        return
    fits = program.facts.fits
    kinds = {loop.kind for loop in program.facts.training_loops} | {fit.kind for fit in fits}
    in_torch, in_keras = bool(kinds & {"torch", "lightning", "fastai", "hf"}), "keras" in kinds
    if not (in_torch and mentions_cuda(program)) and not (in_keras and _sets_up_card(program)):
        return
    cells = (*program.source.cells, *program.source.borrowed)
    if any(_HALF.search(cell.python) for cell in cells) or _is_frozen(program, made):
        return
    shown = network_named(program, made)
    yield Hit(
        next((item for fit in fits for item in (fit.settings, fit.trainer) if item is not None), made),
        f"`{shown}` is trained in float32 on a graphics card: nothing in this file asks for mixed precision",
        {"network": shown},
        next((fix for kind, fix in _FIXES.items() if kind in {fit.kind for fit in fits}), _AUTOCAST),
        kind=_kind(program, made),
    )


def _sets_up_card(program: Program) -> bool:
    """Keras takes a card by itself: it is sure where the program speaks of one."""
    told = program.calls_to("set_memory_growth", "MirroredStrategy", "gpu_device_name")
    return bool(told) or any(node.value in _CARDS for node in program.nodes(ast.Constant) if isinstance(node.value, str))


def _is_frozen(program: Program, made: ast.Call) -> bool:
    """Frozen, or all but a part of it left out of the optimizer: features, which have other advice."""
    names = set(program.targets(made))
    given = {name for item in program.facts.optimizers for name in item.names if name.split(".")[0] in names}
    frozen = any(item.thawed is None and item.name.split(".")[0] in names for item in freezes(program))
    return frozen or (bool(given) and not names & given)


def _kind(program: Program, made: ast.Call) -> Kind:
    """Worth it where this very network is trained, for many epochs, and a card is taken for granted or looked for. Of Keras it
    is not known which of its layers learn."""
    if any(fit.kind == "keras" for fit in program.facts.fits):
        return "nit"
    roots = {name.split(".")[0] for name in program.targets(made)}
    given = {name.split(".")[0] for item in program.facts.optimizers for name in item.names}
    if program.facts.optimizers and not roots & given:
        return "nit"
    counts = [loop.num_epochs for loop in program.facts.training_loops] + [fit.num_epochs for fit in program.facts.fits]
    known = list(filter(is_number, counts))
    looked_for = any(CUDA in program.text(node) for node in program.nodes(ast.IfExp))
    sure = looked_for or bool(asks_for_cuda(program)) or _sets_up_card(program)
    return "choke" if known and max(known) >= _MANY_EPOCHS and sure else "nit"
