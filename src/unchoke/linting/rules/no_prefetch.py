"""A tf.data pipeline that makes a batch only when it is asked for one.

Without `prefetch` at its end, a pipeline decodes the next batch after the step has asked for it: the device waits for the
CPU, then the CPU for the device. With it, the batch is ready. A `.map` without `num_parallel_calls` works on one element at a
time (where it decodes, no-workers says so).

**Write instead.** As the last step of the pipeline:

    dataset = dataset.map(load, num_parallel_calls=tf.data.AUTOTUNE).batch(32).prefetch(tf.data.AUTOTUNE)

**When this is fine.** TensorFlow from 2.12 on adds the prefetch by itself where the last step works when asked (`batch`), and
runs maps without state in parallel; there it is a matter of taste, so it is always a nit. Older versions do not. Pipelines over
arrays in memory with nothing to work out gain little.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.facts.epochs import keras_feeds
from unchoke.code.facts.loaders import DIRECTORY_SETS
from unchoke.code.facts.loops import unwrapped
from unchoke.code.facts.per_sample import is_tf_dataset
from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule, at_method

RULE = Rule(
    group="input",
    stage="load",
    title="tf.data pipeline that is not prefetched",
    kind="nit",
    gain="the time of loading, hidden behind the step",
    since="before TensorFlow 2.12",
    frameworks=("keras",),
    eased_by=("no-workers", "repeated-decode", "heavy-augmentation", "python-transform"),
    in_training=True,
)
_STEPS = frozenset({"map", "batch", "padded_batch", "shuffle", "repeat", "take", "with_options"})


def check(program: Program) -> Iterator[Hit]:
    """One hit: where the pipeline that trains ends."""
    if program.calls_to("prefetch", "prefetch_to_device"):
        return
    loops = (loop.node for loop in program.facts.training_loops if loop.kind in ("tape", "batch"))
    looped = (unwrapped(program, node.iter) for node in loops if isinstance(node, ast.For))
    for given in (*(feed.given for feed in keras_feeds(program)), *looped):
        calls = list(program.made_of(given))
        steps = [call for call in calls if program.method(call) in _STEPS and isinstance(call.func, ast.Attribute)]
        maps = [call for call in steps if program.method(call) == "map"]
        if maps and any(is_tf_dataset(program, call) for call in calls):
            mapped = [program.callable_of(call.args[0]) for call in maps if call.args]
            decodes = any(function is not None and program.facts.decodes(function) for function in mapped)
            last, step = steps[0], program.method(steps[0])
            shown = ", ".join(program.text(item) for item in [*last.args, *last.keywords])
            yield Hit(
                at_method(program, last),
                f"`.{step}` is the last step before training: nothing is prefetched, and before TensorFlow 2.12 "
                "each step waits for its batch",
                {"last step": step, "decodes": decodes or any(program.method(call) in DIRECTORY_SETS for call in calls)},
                f"end with `.{step}({shown if len(shown) < 30 else '…'}).prefetch(tf.data.AUTOTUNE)`",
            )
            return
