"""A network run for each sample where the data are loaded.

A network called in `__getitem__`, in a collate function or in `.map` sees one picture at a time: a batch of one, on the CPU
of a worker or, from several processes, on one device that they fight for (CUDA cannot be used after a fork at all). The
features are worked out again in every epoch, though picture and network stay the same.

**Write instead.** Run it once over all pictures, in batches, before training, and load what it gave:

    with torch.inference_mode():
        features = torch.cat([encoder(batch.to(device)).cpu() for batch in loader])
    torch.save(features, "features.pt")

`unchoke extract` does this for common encoders, and goes on after a kill. Where the network has to see augmented pictures,
call it in the training loop on the whole batch.

**When this is fine.** A network of a few layers that is part of the preparation and runs as fast as the decode. Elsewhere than in
`__getitem__` it is a nit: a generator that predicts may be the program's purpose.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.facts.networks import is_network_made
from unchoke.code.program import Program
from unchoke.linting.questions import function_around, inherits, is_done_anew
from unchoke.linting.rule import Hit, Rule

RULE = Rule(group="compute", stage="load", title="network run on single samples where data are loaded", command="unchoke extract")
_LOADED = ("from_pretrained", "load_model", "torch.hub.load", "timm.create_model", "clip.load", "torch.jit.load", "hub.load")


def check(program: Program) -> Iterator[Hit]:
    said: set[ast.AST | None] = set()
    for call in program.facts.forwards:
        function = program.enclosing_function(call)
        if function in said or not is_done_anew(program, call) or not _is_surely_network(program, call):
            continue
        said.add(function)
        name = program.text(call.func)
        yield Hit(
            call,
            f"`{name}` runs in {function_around(program, call)[1]}, for one sample at a time and again in every epoch",
            {"call": name},
            f"run `{name}` once over all pictures in batches, keep what it gives, and load that here",
            kind=None if function is not None and function.name == "__getitem__" else "nit",
        )


def _is_surely_network(program: Program, call: ast.Call) -> bool:
    """By how it was made or by its class: a name alone may be a tokenizer or a label encoder."""
    func = call.func
    held = func.value if isinstance(func, ast.Attribute) and func.attr in ("predict", "forward", "encode_image") else func
    unpacked = [given.value for given in program.given(program.written(held))]  # model, preprocess = clip.load(…)
    made = program.made_by(held) or (program.name(unpacked[-1]) if unpacked else "")
    if any(word in made for word in _LOADED):
        return True
    owner = program.classes.get(made)
    if owner is not None:
        return inherits(program, owner, "Module", "Model")
    if made.startswith(("tf.keras.Sequential", "tf.keras.layers", "torch.nn.Sequential")):
        return False  # layers that augment or normalise
    return is_network_made(made)
