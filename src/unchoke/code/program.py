"""One program for a whole notebook or script, and what it does: `Program`, with `program.facts`. What every rule asks.

In comes a `SourceFile`. The layers, from below: `bindings` (what each name may be given, branches joined), `nodes` (what is
where), `tracing` (who calls whom, what an expression may be: `choices`, `option`, `made_of`), `constant_values` (`values`), and
`Program` (which code runs for each sample, which loop trains, what evaluates), each subject in its file below `facts/`. A
question that is followed through a program (where a tensor lives, has it a graph, which picture is it) is a `facts/asking`
`Question`. All of it says what is there; rules say what is wrong with it.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import cached_property

from unchoke.code.constant_values import Values
from unchoke.code.facts import conditions, evaluation, loaders, loops, networks, per_sample
from unchoke.code.facts.evaluation import EvaluationCode
from unchoke.code.facts.loaders import BatchSource
from unchoke.code.facts.loops import Loop
from unchoke.code.facts.networks import FrozenModule
from unchoke.code.facts.per_sample import AnyFunction, SampleFunction
from unchoke.code.node_index import FunctionNode


class Program(Values):
    """What rules ask. All answers are worked out once, when first asked; nothing is changed.

    The functions below `facts/` that are named here are methods of it, and what they answer is said there.
    """

    datasets = cached_property(per_sample.dataset_classes)
    fits = cached_property(loops.fits)
    evaluations = cached_property(evaluation.evaluations)
    optimizers = cached_property(networks.optimizers)
    forwards = cached_property(networks.forwards)
    decodes = loaders.decodes
    decode_calls = loaders.decode_calls
    draws_at_random = per_sample.draws_at_random
    is_conditional = conditions.is_conditional
    is_lazy = conditions.is_lazy
    no_grad = evaluation.is_off_at
    is_forward = networks.is_forward
    is_network = networks.is_network

    @property
    def facts(self) -> Program:
        """What the code does: which of it runs for each sample, which loop trains, what evaluates."""
        return self

    # Input

    @cached_property
    def per_sample(self) -> list[SampleFunction]:
        """The functions that run once for each sample."""
        return per_sample.per_sample_functions(self, self.datasets)

    @cached_property
    def _reached(self) -> dict[AnyFunction, SampleFunction]:
        return per_sample.reached_functions(self, self.per_sample)

    def in_per_sample(self, node: ast.AST) -> SampleFunction | None:
        """The record of the per-sample code that `node` is in, directly or through calls."""
        scope: AnyFunction | None = self.index.scope(node)
        while scope is not None:
            if scope in self._reached:
                return self._reached[scope]
            scope = self.index.scope(scope)
        return None

    def functions_of(self, record: SampleFunction) -> list[AnyFunction]:
        """The per-sample function and all it reaches in the file."""
        return [function for function, owner in self._reached.items() if owner is record]

    @cached_property
    def loaders(self) -> list[BatchSource]:
        """Where batches come from."""
        return loaders.loaders(self, self.training_loops, lambda node: bool(self._evaluations_at(node)))

    @cached_property
    def augments(self) -> bool:
        """Is there random augmentation anywhere in the file?"""
        if any(per_sample.is_random_transform(self, call) for call in self.nodes(ast.Call)):
            return True
        return any(per_sample.draws_at_random(self, record.function) for record in self.per_sample)

    # Training

    @cached_property
    def training_loops(self) -> list[Loop]:
        """Loops over batches that train."""
        found = loops.training_loops(self)
        fit = next((item for item in self.fits if item.kind == "lightning"), None)
        return [replace(loop, num_epochs=fit.num_epochs) if fit and loop.kind == "lightning" else loop for loop in found]

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
        blocks = getattr(node, "body", [])
        calls = self.calls_in(blocks)
        found = (self.function_of(call) for call in calls if not self.is_conditional(call) and self.in_mode(call) is None)
        return [function for function in found if function is not None]

    def in_training(self, node: ast.AST) -> Loop | None:
        """The training loop on whose every step `node` runs: in its body, or in a function it calls. Not evaluation inside it."""
        number = self.index.number[node]
        for loop in self.training_loops:
            if self.index.number[loop.node] < number <= self.index.stop(loop.node) and self.in_body(loop.node, number):
                return None if self.in_mode(node) is not None else loop
        function = self.enclosing_function(node)
        while function is not None:
            if function in self._in_step:
                return self._in_step[function]
            function = self.enclosing_function(function)
        return None

    # Evaluation

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
        number = self.index.number[node]
        scope = self.enclosing_scope(node)
        here = (item for item in self.evaluations if item.first <= number <= item.last)
        return [item for item in here if item.kind != "mode" or item.scope is scope]

    # Networks

    @cached_property
    def frozen(self) -> list[FrozenModule]:
        """Parts of networks that are frozen."""
        bodies = [statement for loop in self.training_loops for statement in loop.node.body]
        calls = self.calls_in(bodies)
        return networks.frozen_parts(self, [call for call in calls if self.in_mode(call) is None])
