"""Rules about the step itself: what the network is asked to do, how often, on how much, and what memory does meanwhile.

In: a `TrainingFigures`. Out: causes. Gains of changes that were not tried are estimates, and say what they are made of.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

from unchoke.chokes.diagnose.source_lines import call_in, changed_call, keyword_in, removed_line
from unchoke.chokes.diagnose.training_figures import TrainingFigures, made_at
from unchoke.chokes.recording import ModuleRecord
from unchoke.chokes.watch.remedies import KEEP_FREED_MEMORY
from unchoke.core.findings import Cause, CodeLine, per
from unchoke.core.units import format_bytes, format_count, format_seconds

_TINY = 4
_TINY_STEP_S = 0.05
_MANY_CALLS = 4
_FAULT_BYTES = 4096
_MANY_FAULTS = 2000
_DOUBLE_SAVES = {True: 0.8, False: 0.5}
"""Of forward, backward and optimizer, by float32 instead of float64; convolutions on a CPU have fast code for float32 alone."""
_ANOMALY_SAVES = 0.72
_PADDED = 0.15
_OF_THE_MACHINE = 0.25
"""What is the machine's setting rather than the script's doing, and a coarse estimate, is a note up to here."""
_TILES_SAVE = 0.78
_ONE_BY_ONE_SAVES = 0.95
_IDLE_ROWS = 0.9
_OF_BACKWARD = 0.95
_GRADIENT_TO_OPTIMIZER = 0.5
"""Writing a table's gradient against moving its rows: about a seventh of the memory touched, in pages that are new each time."""


def anomaly_mode(run: TrainingFigures) -> Iterator[Cause]:
    """Autograd's anomaly detection left on: every operation keeps a traceback and every gradient is looked through."""
    if not run.facts.get("anomaly"):
        return
    at = run.facts.get("anomaly_at")
    yield Cause(
        "anomaly-mode",
        "backward",
        _ANOMALY_SAVES * (run.total_s("forward_s") + run.total_s("backward_s")),
        "autograd's anomaly detection is on: each operation keeps a traceback, and each gradient is searched for NaN",
        "take it out; it is for finding where a NaN comes from, not for training",
        CodeLine(str(at[0]), int(at[1]), "") if at else run.step_place,
        {"forward_s": run.total_s("forward_s"), "backward_s": run.total_s("backward_s"), "remedy": "anomaly-off"},
        "torch.autograd.set_detect_anomaly(True)  # remove this line",
        diff=removed_line(CodeLine(str(at[0]), int(at[1]))) if at else (),
    )


def allocator_faults(run: TrainingFigures) -> Iterator[Cause]:
    """Memory handed back to the system after every operation and faulted in again: glibc's allocator, on the CPU."""
    in_loading_s = sum(loader.fetch_system_s for loader in run.loaders if not loader.num_workers)
    faults_in_loading = sum(loader.fetch_minor_faults for loader in run.loaders if not loader.num_workers)
    system_s = max(0.0, run.steps.total("system_s") - in_loading_s)
    faults = max(0.0, run.steps.total("minor_faults") - faults_in_loading)
    if run.recording.machine.get("device") or per(faults, run.num_steps) < _MANY_FAULTS:
        return
    saved_s = min(system_s / max(1.0, run.busy_cores), 0.6 * run.compute_s)
    each = per(faults, run.num_steps)
    yield Cause(
        "allocator-faults",
        "step",
        saved_s,
        f"{each:,.0f} page faults a step ({format_bytes(each * _FAULT_BYTES)} fetched anew from the system) take "
        f"{per(system_s, system_s + run.steps.total('user_s')):.0%} of the CPU time",
        "keep freed memory in the process: glibc gives large blocks back to the system after every operation unless told not to",
        run.step_place,
        {"faults_per_step": each, "system_s": system_s, "user_s": run.steps.total("user_s"), "remedy": "keep-freed-memory"},
        " ".join([*(f"{name}={value}" for name, value in KEEP_FREED_MEMORY.items()), *run.recording.command]),
        worth_share=_OF_THE_MACHINE,
    )


def double_precision(run: TrainingFigures) -> Iterator[Cause]:
    """A network that computes in float64, mostly because NumPy's arrays are."""
    roots = [module for module in _trained_parts(run) if module.depth == 0 and module.num_params and module.dtype == "float64"]
    root = max(roots, key=lambda module: module.seconds_per_step, default=None)
    if root is None:
        return
    convolves = any(module.class_.startswith("Conv") for module in _trained_parts(run))
    place = call_in(root.file, "torch.set_default_dtype", "?.double", "torch.double") or run.step_place
    yield Cause(
        "double-precision",
        "forward",
        _DOUBLE_SAVES[convolves and not run.recording.machine.get("device")] * run.compute_s,
        f"{root.name or root.class_} computes in float64: half as many numbers at a time, and twice the memory, for digits that "
        "training does not use",
        "train in float32: leave the default dtype alone, and convert what comes from NumPy, which is float64 unless told "
        "otherwise",
        place,
        {"dtype": root.dtype, "default_dtype": run.facts.get("default_dtype"), "compute_s": run.compute_s},
        "torch.from_numpy(array).float()  # and no torch.set_default_dtype(torch.float64)",
    )


def dense_optimizer(run: TrainingFigures) -> Iterator[Cause]:
    """An optimizer that moves every row of a large table although a batch touches few of them."""
    tables = [
        module
        for module in _trained_parts(run)
        if module.class_ in ("Embedding", "EmbeddingBag") and module.num_in_optimizer and module.output_width
    ]
    table = max(tables, key=lambda module: module.num_params, default=None)
    if table is None:
        return
    rows = table.num_params // table.output_width
    touched = math.prod(table.input_shape) if table.input_shape else rows
    moved = max((module.num_params for module in _trained_parts(run) if module.depth == 0), default=table.num_params)
    idle = max(0.0, 1 - touched / rows)
    if idle < _IDLE_ROWS:
        return
    optimizer_s = run.total_s("optimizer_s") * min(1.0, table.num_params / moved) * idle
    gradient_s = min(_OF_BACKWARD * run.total_s("backward_s"), _GRADIENT_TO_OPTIMIZER * optimizer_s)
    stepping = [row for row, _ in run.sampled("step", "outside", stages=("optimizer",)) if row.file]
    yield Cause(
        "dense-optimizer",
        "optimizer",
        0.99 * (optimizer_s + gradient_s),
        f"every step makes a gradient for all {rows:,} rows of {table.name or table.class_} and the optimizer moves them all, "
        f"though a batch touches at most {touched:,}",
        "sparse gradients for the table: nn.Embedding(…, sparse=True) with torch.optim.SparseAdam (or SGD, Adagrad) for its "
        "parameters, and the optimizer you have for all others (rows that a batch does not touch then keep still)",
        CodeLine.of(stepping[0]) if stepping else run.step_place,
        {"rows": rows, "touched": touched, "optimizer_s": run.total_s("optimizer_s"), "table": table.name},
        f"nn.Embedding({rows}, {table.output_width}, sparse=True); torch.optim.SparseAdam(table.parameters(), lr=lr)",
    )


def padded_batches(run: TrainingFigures) -> Iterator[Cause]:
    """Texts padded to a fixed length: the network works on columns that hold nothing in any row."""
    loader = run.trained
    share = loader.padded_share if loader is not None else None
    if loader is None or not share or share < _PADDED:
        return
    file = run.step_place.file or loader.made_file
    filling = (
        "torch.full",
        "torch.zeros",
        "numpy.full",
        "numpy.zeros",
        "?.new_zeros",
        "?.new_full",
        "torch.nn.functional.pad",
        "?.pad",
    )
    own_collate = loader.collate_file and "/torch/utils/data/" not in loader.collate_file.replace("\\", "/")
    in_collate = call_in(loader.collate_file, *filling, within=loader.collate_line) if own_collate else None
    place = keyword_in(file, "padding", "max_length") or in_collate or call_in(file, *filling[-2:]) or made_at(loader)
    yield Cause(
        "padded-batches",
        "forward",
        share * run.compute_s,
        f"{share:.0%} of the columns of a batch are padding in every row: samples are filled up to a fixed length, and the "
        "network works on the filling",
        "pad each batch to its own longest sample, in the collate function, and put samples of like length together",
        place,
        {"padded_share": share, "compute_s": run.compute_s},
        "tokenizer(texts, truncation=True); DataCollatorWithPadding(tokenizer)  # or pad_sequence in collate_fn",
    )


def tiny_batches(run: TrainingFigures) -> Iterator[Cause]:
    """So few samples a step that what a step costs anyway outweighs the arithmetic."""
    loader = run.trained
    samples = per(run.steps.total("samples"), run.steps.total("batches"))
    compute_s = per(run.compute_s, run.steps.total("batches"))
    if loader is None or not samples or samples > _TINY or compute_s > _TINY_STEP_S:
        return
    yield Cause(
        "tiny-batches",
        "step",
        _ONE_BY_ONE_SAVES * (1 - samples / 32) * max(run.compute_s, run.rest_s - run.total_s("evaluate_s")),
        f"{format_count(round(samples), 'sample')} a step, {format_seconds(compute_s)} each time: most of it is what a step "
        "costs anyway",
        "use batches of 16 to 64 samples, and a larger learning rate (for Adam, by the square root of the factor)",
        made_at(loader),
        {"batch": samples, "compute_s_per_step": compute_s, "steps": run.num_steps},
        "DataLoader(…, batch_size=32)",
        diff=changed_call(made_at(loader), "DataLoader", batch_size="32"),
    )


def tile_loop(run: TrainingFigures) -> Iterator[Cause]:
    """A network, or a part of one, called many times in a step on equal inputs that could be one batch."""
    looped = [module for module in _trained_parts(run) if module.calls_per_step >= _MANY_CALLS and module.num_params]
    outermost = [module for module in looped if not any(_holds(other, module) for other in looped)]
    module = max(outermost, key=lambda one: one.seconds_per_step, default=None)
    batches = per(run.steps.total("batches"), run.num_steps)
    if module is None or module.calls_per_step < _MANY_CALLS * max(1.0, batches) or not _is_backbone(run, module):
        return
    share = min(1.0, per(module.seconds_per_step * run.num_steps, run.total_s("forward_s")))
    yield Cause(
        "tile-loop",
        "forward",
        _TILES_SAVE * share * run.compute_s,
        f"{module.name or module.class_} is called {module.calls_per_step / max(1.0, batches):.0f} times a batch, each time on "
        f"{module.batch} of shape {'×'.join(map(str, module.input_shape[1:]))}",
        "put the parts into the batch dimension and call it once: (batch·tiles, channels, height, width), then give the result "
        "its tiles back",
        _module_place(run, module),
        {"calls_per_step": module.calls_per_step, "batch": module.batch, "share_of_forward": share},
        "tiles = torch.stack(tiles, dim=1); features = backbone(tiles.flatten(0, 1)).unflatten(0, tiles.shape[:2])",
    )


def frozen_recomputed(run: TrainingFigures) -> Iterator[Cause]:
    """A frozen part that sees the same inputs in every epoch."""
    for module in _frozen(run):
        again = module.repeated_inputs_share or 0.0
        if again < 0.25 or run.epochs < 1.5:
            continue
        again = max(again, 1 - 1 / run.epochs) if again > 0.4 else again
        # looked at closely a step takes longer: that tells the share, and what was timed in all steps how much it is
        roots_s = sum(one.seconds_per_step for one in _trained_parts(run) if one.depth == 0)
        whole_s = roots_s or per(run.total_s("forward_s"), run.num_steps)
        yield Cause(
            "frozen-recomputed",
            "forward",
            again * min(1.0, per(module.seconds_per_step, whole_s)) * run.total_s("forward_s"),
            f"{module.name or module.class_} is frozen and sees the same inputs again in every epoch "
            f"({format_seconds(module.seconds_per_step)} a step)",
            "run it over every sample once, keep what comes out, and train the rest on that; `unchoke fit` does this by itself",
            _module_place(run, module),
            {
                "repeated_inputs_share": module.repeated_inputs_share,
                "seconds_per_step": module.seconds_per_step,
                "epochs": run.epochs,
            },
            "features = torch.cat([encoder(x) for x, _ in DataLoader(dataset, batch_size=64)])  # once, under no_grad, in order",
        )


def frozen_gradients(run: TrainingFigures) -> Iterator[Cause]:
    """Gradients worked out for parameters that no optimizer will move."""
    parts = [
        module
        for module in _trained_parts(run)
        if module.num_trainable and not module.num_in_optimizer and module.grad_enabled and module.output_requires_grad
    ]
    outermost = [module for module in parts if not any(_holds(other, module) for other in parts)]
    module = max(outermost, key=lambda one: one.seconds_per_step, default=None)
    if module is None:
        return
    part = module.name.partition(".")[2] or "backbone"
    share = min(1.0, per(sum(one.seconds_per_step for one in outermost) * run.num_steps, run.total_s("forward_s")))
    yield Cause(
        "frozen-gradients",
        "backward",
        0.9 * share * run.total_s("backward_s"),
        f"gradients are worked out for {module.name or module.class_} ({format_count(module.num_trainable, 'parameter')}), "
        "which no optimizer moves",
        "freeze it for real: requires_grad_(False) on its parameters, and torch.no_grad() around its forward",
        _module_place(run, module),
        {
            "num_trainable": module.num_trainable,
            "share_of_forward": share,
            "backward_s": run.total_s("backward_s"),
            "remedy": "frozen-no-grad",
        },
        f"model.{part}.requires_grad_(False); with torch.no_grad(): features = model.{part}(images)",
    )


def graph_kept(run: TrainingFigures) -> Iterator[Cause]:
    """Results kept with the graphs that made them: memory, and often time, grow with every step."""
    kept = [row for row in run.facts.get("kept_graphs") or () if isinstance(row, dict)]
    if len(kept) < 2 or kept[-1]["tensors"] < kept[0]["tensors"] + max(8, (kept[-1]["step"] - kept[0]["step"]) // 2):
        return
    walls_s = run.steps.each("wall_s")
    usual_s = statistics.median(walls_s[2 : max(6, len(walls_s) // 8)] or [0.0])
    grown_s = sum(
        max(0.0, wall_s - usual_s) * num for wall_s, num in zip(walls_s[2:], run.steps.column("steps")[2:], strict=True)
    )
    grown_bytes = run.typical("rss_bytes", slice(-3, None)) - run.typical("rss_bytes", slice(2, 5))
    lately_s = statistics.median(walls_s[-5:] or [0.0])
    grown = f", and a step from {format_seconds(usual_s)} to {format_seconds(lately_s)}" if lately_s > 1.2 * usual_s else ""
    holder = kept[-1].get("holder") or {}
    name = holder.get("name") or "a variable"
    yield Cause(
        "graph-kept",
        "step",
        grown_s,
        f"{name} keeps {kept[-1]['tensors']:,} results together with the graphs that made them; memory grew by "
        f"{format_bytes(max(0, grown_bytes))}{grown}",
        "keep numbers, not tensors with a graph, in everything that grows with the steps: loss.detach(), or loss.item() once an "
        "epoch",
        CodeLine(holder.get("file", ""), holder.get("line", 0), name) if holder else run.step_place,
        {"kept": kept, "grown_bytes": grown_bytes, "grown_s": grown_s},
        f"{name}.append(loss.detach())" if holder else "total += loss.detach()",
    )


def _trained_parts(run: TrainingFigures) -> list[ModuleRecord]:
    return [module for module in run.recording.modules if not module.in_evaluation]


def _frozen(run: TrainingFigures) -> list[ModuleRecord]:
    """Outermost parts with parameters of which none is trained, slowest first."""
    parts = [
        module
        for module in _trained_parts(run)
        if module.num_params and not module.num_in_optimizer and module.repeated_inputs_share
    ]
    return sorted(parts, key=lambda module: -module.seconds_per_step)


def _holds(outer: ModuleRecord, inner: ModuleRecord) -> bool:
    return outer is not inner and outer.depth < inner.depth and (not outer.name or inner.name.startswith(f"{outer.name}."))


def _is_backbone(run: TrainingFigures, module: ModuleRecord) -> bool:
    """Worth a batch of its own: it takes most of the forward, and is not one small layer that a network reuses by design."""
    return module.seconds_per_step * run.num_steps >= 0.3 * run.total_s("forward_s") and module.class_ not in (
        "Linear",
        "LSTMCell",
        "GRUCell",
    )


def _module_place(run: TrainingFigures, module: ModuleRecord) -> CodeLine:
    return CodeLine(module.file, module.line, module.name or module.class_) if module.file else run.step_place
