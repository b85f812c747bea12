"""How large a training is, as far as the file says: whether what it trains on is one of the small sets of lessons.

In comes a program, out go plain answers for rules that tell a choke from a nit.
"""

from __future__ import annotations

import ast
import re

from unchoke.code.program import Program

_SMALL_SETS = re.compile(
    r"(?:^|\.)(?:E|K|Q|USPS|Fashion|fashion_|Moving)?_?(?:MNIST|mnist|digits|CIFAR100?|cifar100?|SVHN|svhn|STL10|USPS|imdb|reuters|boston_housing)"
    r"(?:\.load_data)?$|(?:^|\.)load_(?:digits|iris|wine|breast_cancer|mnist)$"
)
_HOSTED = ("/content/", "/kaggle/")


def trains_on_small_set(program: Program) -> bool:
    """MNIST, CIFAR and their like: an epoch takes seconds to a minute."""
    return any(_SMALL_SETS.search(program.name(call)) for call in program.nodes(ast.Call))


def is_hosted_notebook(program: Program) -> bool:
    """Written for Colab or Kaggle: Linux, where processes are forked."""
    if not program.is_notebook:
        return False
    texts = (node.value for node in program.nodes(ast.Constant) if isinstance(node.value, str))
    return any(text.startswith(_HOSTED) for text in texts) or any(
        program.name(call).startswith("google.colab") for call in program.nodes(ast.Call)
    )
