"""A source read as one program: every executed cell in file order, with names, values, calls and places answered.

In comes a `Source`, out goes a `Program`, the one thing rules ask. Its layers, from below: `nodes` (what is where), `tracing`
(who calls whom, what a variable was given), `values` (constants), and here `facts` (what the code is for). It judges nothing.
"""

from __future__ import annotations

from functools import cached_property

from unchoke.code.constant_values import UNKNOWN, Valued
from unchoke.code.facts import Facts
from unchoke.code.node_index import FunctionNode, LoopNode
from unchoke.code.nodes import is_main_test

__all__ = ["UNKNOWN", "FunctionNode", "LoopNode", "Program", "is_main_test"]


class Program(Valued):
    """What rules ask. All answers are worked out once; nothing is changed."""

    @cached_property
    def facts(self) -> Facts:
        """What the code does: which of it runs for each sample, which loop trains, what evaluates."""
        return Facts(self)

    @property
    def calls(self) -> Program:
        """Itself: `program.calls.argument_for(…)` is `program.argument_for(…)`."""
        return self
