"""Does the program augment at random while training? Transforms, Keras layers and generators, tf.image, hand-written flips."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from unchoke.code.constant_values import Valued
from unchoke.code.facts.tables import RANDOM_GENERATOR_OPTIONS, RANDOM_TRANSFORMS

_RANDOM_NUMBERS = frozenset(
    {
        "random.random", "random.uniform", "random.randint", "random.choice", "random.gauss", "random.randrange", "random.sample",
        "numpy.random.rand", "numpy.random.random", "numpy.random.uniform", "numpy.random.randint", "numpy.random.choice",
        "numpy.random.normal", "numpy.random.randn", "torch.rand", "torch.randint", "torch.randn", "torch.randn_like",
        "torch.rand_like", "tf.random.uniform", "tf.random.normal", "torch.bernoulli",
    }
)  # fmt: skip
_RNG_METHODS = frozenset({"random", "uniform", "integers", "choice", "normal", "randint", "rand"})


def random_transforms(program: Valued, root: ast.AST | None = None) -> list[ast.Call]:
    """Calls that make or apply a random transform, in the program or under `root`."""
    calls: Iterable[ast.Call] = program.nodes(ast.Call) if root is None else program.within(root, ast.Call)
    return [call for call in calls if is_random_transform(program, call)]


def is_random_transform(program: Valued, call: ast.Call) -> bool:
    name = program.name(call)
    method = name.rpartition(".")[2]
    if method == "ImageDataGenerator":
        return any(keyword.arg in RANDOM_GENERATOR_OPTIONS and program.value(keyword.value) for keyword in call.keywords)
    if method not in RANDOM_TRANSFORMS:
        return False
    return method not in ("Flip", "Rotate", "Transpose", "Equalize", "random_crop", "Affine") or not name.startswith("?.")


def is_random_number(program: Valued, call: ast.Call) -> bool:
    """A draw from a random generator."""
    name = program.name(call)
    if name in _RANDOM_NUMBERS:
        return True
    receiver = program.written(program.receiver(call)).lower()
    return name.rpartition(".")[2] in _RNG_METHODS and receiver.rpartition(".")[2] in (
        "rng",
        "rs",
        "generator",
        "random_state",
        "rand",
    )


def draws_at_random(program: Valued, function: ast.AST) -> bool:
    """Does this function, or one it calls, draw random numbers or apply a random transform?"""
    parts = [function, *program.reach(function)]
    calls = (call for part in parts for call in program.within(part, ast.Call))
    return any(is_random_number(program, call) or is_random_transform(program, call) for call in calls)
