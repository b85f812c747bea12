"""One program for a whole notebook or script, and what it does: `Program`, with `program.facts`. What every rule asks.

In comes a `SourceFile`. The layers, from below: `bindings` (what each name may be given, branches joined), `nodes` (what is
where), `tracing` (who calls whom, what an expression may be: `choices`, `option`, `made_of`), `constant_values` (`values`), and
`Facts` (which code runs for each sample, which loop trains, what evaluates), each subject of it in its file below `facts/`. A
question that is followed through a program (where a tensor lives, has it a graph, which picture is it) is a `facts/asking`
`Question`. All of it says what is there; rules say what is wrong with it.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import cached_property

from unchoke.code.constant_values import Values
from unchoke.code.facts import conditions, networks
from unchoke.code.facts import evaluation as evaluation_facts
from unchoke.code.facts import loaders as loaders_facts
from unchoke.code.facts import loops as loops_facts
from unchoke.code.facts import per_sample as per_sample_facts
from unchoke.code.facts.evaluation import EvaluationCode
from unchoke.code.facts.loaders import BatchSource
from unchoke.code.facts.loops import Fit, Loop
from unchoke.code.facts.networks import FrozenModule, Optimizer
from unchoke.code.facts.per_sample import AnyFunction, SampleFunction
from unchoke.code.node_index import FunctionNode


class Facts:
    """Every answer is worked out once, when first asked."""

    def __init__(self, program: Values) -> None:
        self._program = program

    # Input

    @cached_property
    def datasets(self) -> list[ast.ClassDef]:
        """Data set classes defined in the file."""
        return per_sample_facts.dataset_classes(self._program)

    @cached_property
    def per_sample(self) -> list[SampleFunction]:
        """The functions that run once for each sample."""
        return per_sample_facts.per_sample_functions(self._program, self.datasets)

    @cached_property
    def _reached(self) -> dict[AnyFunction, SampleFunction]:
        return per_sample_facts.reached_functions(self._program, self.per_sample)

    def in_per_sample(self, node: ast.AST) -> SampleFunction | None:
        """The record of the per-sample code that `node` is in, directly or through calls."""
        scope: AnyFunction | None = self._program.index.scope(node)
        while scope is not None:
            if scope in self._reached:
                return self._reached[scope]
            scope = self._program.index.scope(scope)
        return None

    def functions_of(self, record: SampleFunction) -> list[AnyFunction]:
        """The per-sample function and all it reaches in the file."""
        return [function for function, owner in self._reached.items() if owner is record]

    def decodes(self, function: ast.AST) -> bool:
        """Does this function, or what it calls, decode an image or open a raster?"""
        return loaders_facts.decodes(self._program, function)

    def decode_calls(self, function: ast.AST) -> list[ast.Call]:
        """The calls that decode an image in this function and in what it calls."""
        return loaders_facts.decode_calls(self._program, function)

    @cached_property
    def loaders(self) -> list[BatchSource]:
        """Where batches come from."""
        return loaders_facts.loaders(self._program, self.training_loops, lambda node: bool(self._evaluations_at(node)))

    @cached_property
    def augments(self) -> bool:
        """Is there random augmentation anywhere in the file?"""
        if per_sample_facts.random_transforms(self._program):
            return True
        return any(per_sample_facts.draws_at_random(self._program, record.function) for record in self.per_sample)

    def draws_at_random(self, function: ast.AST) -> bool:
        """Does this function, or what it calls, use random numbers or random transforms?"""
        return per_sample_facts.draws_at_random(self._program, function)

    # Training

    @cached_property
    def training_loops(self) -> list[Loop]:
        """Loops over batches that train."""
        found = loops_facts.training_loops(self._program)
        fit = next((item for item in self.fits if item.kind == "lightning"), None)
        return [replace(loop, num_epochs=fit.num_epochs) if fit and loop.kind == "lightning" else loop for loop in found]

    @cached_property
    def fits(self) -> list[Fit]:
        """Training by one call."""
        return loops_facts.fits(self._program)

    @cached_property
    def _in_step(self) -> dict[FunctionNode, Loop]:
        """Functions that run on every step of a training loop, through calls that no condition guards."""
        found: dict[FunctionNode, Loop] = {}
        for loop in self.training_loops:
            left = self._called_each_step(loop.node)
            while left:
                function = left.pop()
                if function not in found and self.evaluation_of(function) is None:
                    found[function] = loop
                    left.extend(self._called_each_step(function))
        return found

    def _called_each_step(self, node: ast.AST) -> list[FunctionNode]:
        program = self._program
        blocks = getattr(node, "body", [])
        calls = program.calls_in(blocks)
        found = (program.function_of(call) for call in calls if not self.is_conditional(call) and self.in_mode(call) is None)
        return [function for function in found if function is not None]

    def in_training(self, node: ast.AST) -> Loop | None:
        """The training loop on whose every step `node` runs: in its body, or in a function it calls. Not evaluation inside it."""
        program = self._program
        number = program.index.number[node]
        for loop in self.training_loops:
            if program.index.number[loop.node] < number <= program.index.stop(loop.node) and program.in_body(loop.node, number):
                return None if self.in_mode(node) is not None else loop
        function = program.enclosing_function(node)
        while function is not None:
            if function in self._in_step:
                return self._in_step[function]
            function = program.enclosing_function(function)
        return None

    def is_conditional(self, node: ast.AST) -> bool:
        """Only now and then: under `if step % n == 0`, `if step == 0`, `if debug`."""
        return conditions.is_conditional(self._program, node)

    def is_lazy(self, node: ast.AST) -> bool:
        """Once and then kept: under `if self.x is None`, `if key not in cache`, `except KeyError`."""
        return conditions.is_lazy(self._program, node)

    # Evaluation

    @cached_property
    def evaluations(self) -> list[EvaluationCode]:
        """Functions and stretches of code that evaluate."""
        return evaluation_facts.evaluations(self._program)

    def evaluation_of(self, function: ast.AST) -> EvaluationCode | None:
        """The record of a function that evaluates."""
        return next((item for item in self.evaluations if item.node is function and item.kind != "mode"), None)

    def in_mode(self, node: ast.AST) -> EvaluationCode | None:
        """The stretch after `model.eval()` that `node` is in."""
        found = [item for item in self._evaluations_at(node) if item.kind == "mode"]
        return found[-1] if found else None

    def in_evaluation(self, node: ast.AST) -> EvaluationCode | None:
        """The innermost evaluation code that `node` is in; its `no_grad` says whether gradients are off at `node`."""
        found = self._evaluations_at(node)
        return replace(found[-1], no_grad=found[-1].kind == "lightning" or self.no_grad(node)) if found else None

    def _evaluations_at(self, node: ast.AST) -> list[EvaluationCode]:
        number = self._program.index.number[node]
        scope = self._program.enclosing_scope(node)
        here = (item for item in self.evaluations if item.first <= number <= item.last)
        return [item for item in here if item.kind != "mode" or item.scope is scope]

    def no_grad(self, node: ast.AST) -> bool:
        """Are gradients off where `node` runs?"""
        return evaluation_facts.is_off_at(self._program, node)

    # Networks

    @cached_property
    def frozen(self) -> list[FrozenModule]:
        """Parts of networks that are frozen."""
        bodies = [statement for loop in self.training_loops for statement in loop.node.body]
        calls = self._program.calls_in(bodies)
        return networks.frozen_parts(self._program, [call for call in calls if self.in_mode(call) is None])

    @cached_property
    def optimizers(self) -> list[Optimizer]:
        """Optimizers and whose parameters they have."""
        return networks.optimizers(self._program)

    @cached_property
    def forwards(self) -> list[ast.Call]:
        """Calls that run a network."""
        return networks.forwards(self._program)

    def is_forward(self, call: ast.Call) -> bool:
        return networks.is_forward(self._program, call)

    def is_network(self, node: ast.AST) -> bool:
        return networks.is_network(self._program, node)


class Program(Values):
    """What rules ask. All answers are worked out once; nothing is changed."""

    @cached_property
    def facts(self) -> Facts:
        """What the code does: which of it runs for each sample, which loop trains, what evaluates."""
        return Facts(self)
