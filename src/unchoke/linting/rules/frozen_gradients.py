"""Gradients computed for what is not trained.

An optimizer that is given only the head's parameters leaves the encoder as it is, but autograd does not know that: as long as the
encoder's parameters require gradients, every step keeps all of its activations and runs the whole backward pass through it, for
gradients that nobody uses. A small classifier trained that way took 4.6 s, and 1.7 s with the backbone frozen; the memory for its
activations goes away as well.

**Write instead.** Say that the encoder does not learn:

    for parameter in model.backbone.parameters():
        parameter.requires_grad = False

or run it without gradients: `with torch.no_grad(): features = model.backbone(images)`.

**When this is fine.** When gradients have to pass through the encoder to something trained in front of it, or another optimizer
has the rest. PyTorch only: Keras computes gradients for trainable weights alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke.code.facts.freezing import (
    ENCODERS,
    any_frozen,
    is_fed_by_a_network,
    is_head,
    key_of,
    key_of_call,
    maker_of,
    put_together,
)
from unchoke.code.facts.gradients import is_off
from unchoke.code.facts.loops import Loop
from unchoke.code.facts.networks import Optimizer
from unchoke.code.facts.origins import sources
from unchoke.code.node_index import arguments
from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    group="compute",
    stage="step",
    title="gradients for what is not trained",
    gain="4.6 to 1.7 s for a small classifier with its backbone frozen (machine A)",
    claim="Planted chokes",
    command="unchoke fit",
    frameworks=("torch",),
)
_LIBRARIES = (
    "torchvision.models", "timm.", "segmentation_models_pytorch.", "transformers.", "torch.hub.load", "efficientnet_pytorch.",
    "open_clip.", "clip.load", "pretrainedmodels.", "fastai.vision",
)  # fmt: skip
_LAST_PARTS = ("layer4", "roi_heads", "segmentation_head", "decoder", "aux_classifier", "avgpool", "head_drop", "attnpool")


def check(program: Program) -> Iterator[Hit]:
    optimizers = program.facts.optimizers
    if program.calls_to("add_param_group") or any(not _names(program, item) for item in optimizers):
        return
    frozen = any_frozen(program) if optimizers else set()
    whole = [item for item in optimizers if not _is_filtered(program, item)]
    trained = {key_of(program, name, item.call) for item in whole for name in _names(program, item)}
    for item in optimizers:
        forward = _wasted(program, item, trained, frozen)
        if forward is not None:
            yield _hit(program, item, forward)
            return


def _hit(program: Program, item: Optimizer, forward: ast.Call) -> Hit:
    run = program.text(forward.func)
    names = _names(program, item)
    given = " and ".join(f"`{name}`" for name in names)
    return Hit(
        item.call,
        f"the optimizer has only the parameters of {given}, but gradients are computed through all of `{run}`, and not used",
        evidence={"trained": names, "run with gradients": run, "at line": program.line(forward)},
        fix=f"set `requires_grad = False` on what {given} does not cover, or run it under `torch.no_grad()`",
    )


def _names(program: Program, item: Optimizer) -> list[str]:
    """The modules whose parameters it is given; `model.classifier[-1]` and `model.get_classifier()` too."""
    if "" not in item.names:
        return list(item.names)
    given = program.argument(item.call, "params", 0) or item.call
    calls = [call for call in program.within(given, ast.Call) if program.method(call) in ("parameters", "named_parameters")]
    texts = [program.text(call.func).rpartition(".")[0].replace(".get_classifier()", ".classifier") for call in calls]
    return texts if all(re.fullmatch(r"[\w.]+(?:\[-?\d+\])?", text) for text in texts) else []


def _is_filtered(program: Program, item: Optimizer) -> bool:
    """`[p for n, p in model.named_parameters() if "head" in n]`: a part by its name, and the only one that is given."""
    given = program.argument(item.call, "params", 0)
    shown = program.latest(given) or given
    tests = shown.generators[0].ifs if isinstance(shown, ast.ListComp | ast.GeneratorExp) else []
    if len(tests) != 1:
        return False
    contains = isinstance(tests[0], ast.Compare) and isinstance(tests[0].ops[0], ast.In)
    return contains or program.method(tests[0]) == "startswith"


def _wasted(program: Program, item: Optimizer, trained: set[str], frozen: set[str]) -> ast.Call | None:
    """A forward call in training through something that is neither trained nor frozen, whose output the trained part needs."""
    own = {key_of(program, name, item.call) for name in _names(program, item)}
    for call in program.facts.forwards:
        key = key_of_call(program, call)
        loop = program.facts.in_training(call)
        if loop is None or loop.kind not in ("torch", "lightning") or is_off(program, call) or _is_near(key, frozen):
            continue
        if _is_filtered(program, item) and key in own:
            return call
        if key in trained or any(key.startswith(name + ".") for name in trained):
            continue
        parts = [name.removeprefix(key + ".").partition(".")[0] for name in trained if name.startswith(key + ".")]
        last = all(is_head(part) or part.partition("[")[0] in _LAST_PARTS for part in parts)
        partly = last and any(name.startswith(key + ".") for name in own) and maker_of(program, call.func).startswith(_LIBRARIES)
        if partly or _feeds(program, call, loop, own) or _holds(program, call, own, trained | frozen):
            return None if is_fed_by_a_network(program, call) else call
    return None


def _is_near(key: str, frozen: set[str]) -> bool:
    """Is it, a part of it, or what it is a part of, frozen?"""
    return any(key == name or key.startswith(name + ".") or name.startswith(key + ".") for name in frozen)


def _feeds(program: Program, call: ast.Call, loop: Loop, own: set[str]) -> bool:
    """A network of its own (a variable, or a part of the same class) whose output goes into the trained part."""
    if not _is_encoder(program, call):
        return False
    for other in program.within(program.enclosing_function(call) or loop.node, ast.Call):
        if program.facts.is_forward(other) and key_of_call(program, other) in own:
            behind = [part for item in arguments(other) for part in sources(program, item) if isinstance(part, ast.Call)]
            if call in behind and not any(program.method(part) in ("detach", "numpy", "item") for part in behind):
                return True
    return False


def _holds(program: Program, call: ast.Call, own: set[str], settled: set[str]) -> bool:
    """`model = nn.Sequential(encoder, head)` with only `head` trained and `encoder` neither trained nor frozen."""
    parts = put_together(program, call)
    keys = [key_of(program, program.written(item), item) for item in parts]
    if not own & set(keys) or _is_near(keys[0], settled):
        return False
    return maker_of(program, parts[0]).startswith(_LIBRARIES)


def _is_encoder(program: Program, call: ast.Call) -> bool:
    """Something with parameters worth the name: made by a library of networks, several layers, or called an encoder and not
    made by a library that is not known to make networks."""
    maker = maker_of(program, call.func)
    made = maker.startswith((*_LIBRARIES, "torch.nn.Sequential"))
    named = program.written(call.func).rpartition(".")[2] in ENCODERS and ("." not in maker or maker.startswith("?."))
    return made or named or program.assigned_class(call.func) is not None
