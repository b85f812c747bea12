"""From a recording to findings: which causes of the catalogue explain where the seconds went, what each costs, what to do.

`diagnose(recording)` gives them with the largest gain first. Two kinds of rules: those that read counters (loaders, networks,
evaluation, checkpoints), here, and those that read the user's source at a costly line (`line_causes.py`). A rule explains a
line and never hides it: the table of lines in the report comes from `figures.py` alone. A gain is what was measured at the
line, bounded by the replay for everything that loads; a cause whose gain cannot be computed states its share and no gain.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from unchoke_doctor.causes import cause
from unchoke_doctor.causes.figures import NETWORK, Figures, Look, Place, made_at, per
from unchoke_doctor.causes.line_causes import MeasuredCause, line_causes
from unchoke_doctor.finding import Finding
from unchoke_doctor.recording import CallRow, LoaderRecord, ModuleRecord, Recording
from unchoke_doctor.source_lines import call_line, keyword_line, line_text, source_line, with_keywords
from unchoke_doctor.units import format_bytes, format_count, format_seconds

WORTH, NOTED = 0.10, 0.03
"""Shares of the training from which a cause is a warning, and from which it is mentioned."""
_MIN_STEPS = 3
_HANDOVER_S, _STACK_S, _BYTES_PER_S = 1e-3, 1e-4, 1.5e9
"""What a batch costs on its way from a worker, and through `torch.stack`: estimates, on the high side."""
_SHRINKS = re.compile(r"pool|resize|interpolate|\[[^\]]*::|crop|mean\(|rescale")
_FILE_STAGES = ("decode", "open", "read", "stat", "list", "wait")
_STEPPED = ("Linear", "LSTMCell", "GRUCell", "RNNCell", "Embedding", "LayerNorm", "Dropout")
"""Layers that networks reuse by design."""
_MUCH_BYTES = 50_000_000
_ZEROS, _SPARSE_COST = 0.98, 10
_SAVE_S, _SAVED_BYTES_PER_S = 0.05, 1e8
"""What saving takes on a usual disk, on the high side."""
_OF_THE_MACHINE, _FAULT_S = 0.35, 0.7e-6
"""Below this share of the CPU time, clearing memory is the system's way and nothing the script does."""
Causes = Iterator[MeasuredCause]


def diagnose(recording: Recording) -> list[Finding]:
    """What holds the recorded training back; nothing where it is too short to tell, or healthy."""
    run = Figures(recording)
    if 0 < run.num_steps < _MIN_STEPS or run.span_s <= 0 or (recording.exit_code and not run.num_steps):
        return []
    found = [one for rule in _RULES for one in rule(run)] if run.num_steps else []
    found = [_bounded(one, run) for one in [*found, *line_causes(run, found)]]
    shown: dict[tuple[str, str, int], MeasuredCause] = {}
    for one in sorted(found, key=lambda one: -one.saved_s * one.weight):
        if one.always or one.saved_s >= NOTED * run.span_s:
            shown.setdefault((one.code, one.place.file, one.place.line), one)
    return [_finding(one, run) for one in shown.values()]


def _bounded(one: MeasuredCause, run: Figures) -> MeasuredCause:
    """Loading cannot save more than the replay leaves, nothing more than the whole training."""
    return replace(one, saved_s=min(one.saved_s, run.span_s, run.loading_limit_s if one.loads else run.span_s))


def _finding(one: MeasuredCause, run: Figures) -> Finding:
    page, steps = cause(one.code), max(1, run.num_steps)
    share = min(0.99, one.saved_s / run.span_s)
    of = (
        f"{format_seconds(one.saved_s / steps)} of {format_seconds(run.span_s / steps)} {'a step' if run.num_steps else 'in all'}"
    )
    gain = f"at most {of} ({share:.0%}), {1 / (1 - share):.1f}× as fast: {one.how}"
    evidence = {"share": round(share, 4), "seconds": round(one.saved_s, 4), "function": one.place.function, **one.evidence}
    return Finding(
        one.code, one.message, severity="warning" if share >= WORTH else "info", path=one.place.file or None,
        line=one.place.line or None, stage=page.stage, evidence=evidence, expected_gain=gain if one.computed else "",
        fix=one.fix or page.fix, kind=page.kind, basis="measured",
    )  # fmt: skip


def _changed(place: Place, **keywords: str) -> dict[str, Any]:
    """The line that makes the loader, as it is and as it could be; nothing where it cannot be written on one line."""
    diff = with_keywords(place.file, place.line, "DataLoader", **keywords)
    return {"diff": diff} if diff else {}


# --- loading ----------------------------------------------------------------------------------------------------------


def _workers(run: Figures) -> Causes:
    """Loading in the training process, or in fewer workers than there are free cores."""
    loader = run.trained
    if loader is None or run.cores < 2 or not loader.fetches:
        return
    cpu_s, step_cpu_s = loader.fetch_user_s + loader.fetch_system_s, run.steps.total("user_s") + run.steps.total("system_s")
    if not loader.num_workers:
        step_cpu_s, workers = max(0.0, step_cpu_s - cpu_s), max(2, min(run.cores, 8, round(run.free_cores)))
        handing_s = loader.batches * (_HANDOVER_S + (loader.batch_bytes or 0) / _BYTES_PER_S)
        least_s = max(0.0, run.span_s - loader.fetch_s) + handing_s
        after_s = max(least_s, loader.fetch_s / workers, (cpu_s + step_cpu_s + 2 * handing_s) / run.free_cores)
        code, saved_s = "no-workers", run.span_s - after_s
        each_s = per(loader.fetch_s, loader.batches)
        said = f"samples are made in the training process (num_workers=0), {format_seconds(each_s)} a batch"
    else:
        has = sum(one.num_workers for one in run.beside if not one.evaluation)
        workers = min(run.cores, has + math.floor(run.free_cores - has - per(step_cpu_s, run.span_s) + 0.5))
        if workers <= has:
            return
        code, saved_s = "few-workers", run.waited_s * (1 - has / workers)
        said = f"{has} workers load, and the loop waits for them {per(run.waited_s, run.span_s):.0%} of the time"
    place, busy = made_at(loader), run.recording.machine.get("busy_cores")
    machine = f"{run.cores} cores" + (f", {busy:.1f} of them busy on average, whoever kept them so" if busy is not None else "")
    yield MeasuredCause(
        code, saved_s, f"{said}; the machine has {machine}", place,
        f"num_workers={workers}, persistent_workers=True; a lambda or an open file in the Dataset can become a function of the "
        "module, or be opened on first use",
        f"loading beside the step in {workers} workers, as far as the free cores allow",
        {"cores": run.cores, "busy_cores": busy, "free_cores": run.free_cores, "num_workers": loader.num_workers,
         "remedy": f"workers:{workers}", **_changed(place, num_workers=str(workers), persistent_workers="True")},
        loads=True, weight=1.0 if loader.num_workers else 0.7,  # cheaper samples are better than more workers
    )  # fmt: skip


def _restarted(run: Figures) -> Causes:
    for loader in run.beside:
        place, each_s = made_at(loader), per(loader.startup_s, loader.iterators)
        if loader.persistent or loader.iterators < 2:
            continue
        yield MeasuredCause(
            "workers-restarted", loader.startup_s - each_s,
            f"{loader.num_workers} workers are started {loader.iterators} times ({loader.start_method}) and take "
            f"{format_seconds(each_s)} each time",
            place, how="starting workers, all but once",
            evidence={"startup_s": loader.startup_s, "iterators": loader.iterators, "remedy": "persistent-workers",
                      **_changed(place, persistent_workers="True")},
        )  # fmt: skip


def _collate(run: Figures) -> Causes:
    """A collate function that works in Python, or lists that torch's own makes many tensors of."""
    for loader in run.loaders:
        own, copy_s = _own_collate(loader), _STACK_S + (loader.batch_bytes or 0) / _BYTES_PER_S
        each_s = per(loader.collate_s, loader.fetches)
        place, fix, spent_s = Place(loader.collate_file, loader.collate_line, loader.collate), "", loader.collate_s
        if own:
            looks = [look for look in run.looks if look.row.phase == "collate" and look.row.file == loader.collate_file]
            place = next((group.place for group in run.grouped(looks)), place)
        elif each_s > 1e-3 + 10 * copy_s and loader.collate_s > 0.2 * loader.fetch_s:
            source = source_line(loader.dataset_file, loader.dataset_line)
            place = Place(loader.dataset_file, source.last_return if source else 0, f"{loader.dataset}.__getitem__")
            place = place if place.line else made_at(loader)
            fix = "return arrays or tensors from __getitem__: each number of a Python list becomes a tensor of its own"
            spent_s += max(0.0, loader.handover_s - loader.fetches * _HANDOVER_S)
        else:
            continue
        yield MeasuredCause(
            "slow-collate", run.on_path_s(spent_s - loader.fetches * copy_s),
            f"{loader.collate} takes {format_seconds(each_s)} a batch, {per(loader.collate_s, loader.fetch_s):.0%} of making it",
            place, fix, "collating, but for one copy of the batch", {"collate_s": loader.collate_s, "batches": loader.fetches},
            loads=True,
        )  # fmt: skip


def _own_collate(loader: LoaderRecord) -> bool:
    """Whether the collate function is the user's."""
    return bool(loader.collate_file) and not any(
        part in loader.collate_file.replace("\\", "/") for part in ("/torch/utils/data/", "/site-packages/")
    )


def _decoding(run: Figures) -> Causes:
    """Pictures decoded at a multiple of what is used, for a crop, or again in every epoch."""
    used_px = math.prod(run.used_sides) if run.used_sides else 0
    for row in run.calls("decode"):

        def shrinks(look: Look, row: CallRow = row) -> bool:
            at = look.row
            return (at.file, at.function) == (row.file, row.function) and at.stage != "decode" and at.library.startswith("PIL.")

        px, spent_s = per(row.amount, row.count), row.seconds + _made_s(run, shrinks)
        what = f"{row.detail.get('format') or 'image'} file"
        size = f"{row.detail.get('width_px', 0)}×{row.detail.get('height_px', 0)}"
        evidence = {"decodes": row.count, "files": row.distinct, "decode_s": row.seconds, "used_px": used_px}
        place = Place(row.file, row.line, row.function)
        if used_px and px >= 4 * used_px:
            divisor, source = _draft(row, used_px), source_line(row.file, row.line)
            resized = source is None or source.function_calls("resize", "thumbnail", "Resize", "RandomResizedCrop")
            crops = source is not None and not resized and source.function_calls("crop")
            left = used_px / px if divisor == 1 else 1 / divisor
            yield MeasuredCause(
                "whole-file-for-crop" if crops else "oversized-decode", run.on_path_s(spent_s * (1 - left)),
                f"{what}s of {size} are decoded in full, {px / used_px:.0f} times the {used_px:,} pixels that are used", place,
                how=f"decoding and shrinking, less the {left:.0%} that a smaller decode takes", loads=True,
                evidence=evidence | ({"divisor": divisor, "remedy": f"draft-jpeg:{round(used_px**0.5)}"} if divisor > 1 else {}),
            )  # fmt: skip
        elif row.distinct:
            kept = f"; in the size that is used they take {format_bytes(row.distinct * used_px * 3)}" if used_px else ""
            yield MeasuredCause(
                "slow-decode", run.on_path_s(spent_s * (1 - row.distinct / row.count)),
                f"{format_count(row.distinct, what)} of {size} are decoded {row.count / row.distinct:.1f} times each{kept}",
                place, how="decoding, all but once for each file", evidence=evidence, loads=True, weight=0.9,
            )  # fmt: skip


def _made_s(run: Figures, wanted: Callable[[Look], bool]) -> float:
    """Seconds of making samples, over all processes, at looks that are wanted."""
    making = [look for look in run.looks if look.row.phase in run.making]
    wanted_s = sum(look.seconds for look in making if wanted(look))
    return run.making_s * per(wanted_s, sum(look.seconds for look in making)) if run.loaders else wanted_s


def _draft(row: CallRow, used_px: int) -> int:
    """By how much a JPEG can be shrunk while it is decoded without falling below the size that is used."""
    short_px, side = min(row.detail.get("width_px", 0), row.detail.get("height_px", 0)), round(used_px**0.5)
    return next((by for by in (8, 4, 2) if row.detail.get("format") == "JPEG" and short_px // by >= side), 1)


def _full_size(run: Figures) -> Causes:
    """Work on pictures far larger than what is used, as the arrays seen at those lines tell."""
    used = run.used_sides
    used_px = math.prod(used) if used else 0
    large = {
        (str(peek["file"]), int(peek["line"])): peek
        for peek in run.facts.get("peeks") or ()
        if used_px and peek["px"] >= 6 * used_px and all(side >= 2 * of for side, of in zip(peek["sides"], used, strict=True))
    }
    making = [look for look in run.looks if look.row.phase in run.making and look.row.stage not in (*_FILE_STAGES, *NETWORK)]
    looks = [look for look in making if (look.row.file, look.row.line) in large]
    looks = [look for look in looks if not _SHRINKS.search(line_text(look.row.file, look.row.line))]
    if not looks:
        return
    first = run.grouped(looks)[0]
    peek, at = large[first.row.file, first.row.line], sorted({(look.row.file, look.row.line) for look in looks})
    decoded = [row for row in run.calls("decode") if (row.file, row.function) == (first.row.file, first.row.function)]
    smaller = any(_draft(row, used_px) > 1 for row in decoded)  # decoded smaller, the picture is small for these lines as well
    wide = ", in float32" if peek["dtype"] == "float64" else ""
    yield MeasuredCause(
        "heavy-augmentation", sum(look.seconds * (1 - used_px / large[look.row.file, look.row.line]["px"]) for look in looks),
        f"{format_count(len(at), 'line')} work on whole pictures ({peek['name']}: {peek['text']}), {peek['px'] / used_px:.0f} "
        f"times the {used_px:,} pixels that are used",
        first.place, f"shrink or crop the picture first, while it is small in memory, then work on what is left{wide}",
        "these lines, by the pixels that are thrown away", {"array": peek["text"], "used_px": used_px, "at": list(map(list, at))},
        loads=True, weight=0.5 if smaller else 1.0,
    )  # fmt: skip


def _shrunk_later(run: Figures) -> Causes:
    """Samples handed over at a multiple of what the network sees, to be shrunk in the loop."""
    loader = run.trained
    shapes = [one.input_shape for one in run.trained_parts if one.depth == 0 and one.num_params and len(one.input_shape) >= 3]
    if loader is None or not loader.batch_bytes or not loader.batch_size or not shapes:
        return
    each, seen = loader.batch_bytes / loader.batch_size, max(4.0 * math.prod(shape[1:]) for shape in shapes)
    if each < 4 * seen:
        return
    beside = [look for look in run.looks if look.row.phase == "step" and look.row.stage not in NETWORK and look.row.file]
    groups = run.grouped([look for look in beside if _SHRINKS.search(line_text(look.row.file, look.row.line))])
    spent_s = run.on_path_s(loader.handover_s + loader.collate_s) + sum(group.seconds for group in groups)
    yield MeasuredCause(
        "oversized-decode", (1 - seen / each) * spent_s,
        f"a sample is {format_bytes(each)} as it is loaded, {each / seen:.0f} times what the network sees ({format_bytes(seen)})",
        groups[0].place if groups else made_at(loader),
        "shrink or crop in __getitem__, so that a sample is small when it leaves the worker, as uint8 or float32",
        "collating, handing over and shrinking, by the part that is thrown away", {"loaded_bytes": each, "seen_bytes": seen},
    )  # fmt: skip


# --- the network ------------------------------------------------------------------------------------------------------


def _frozen(run: Figures) -> Causes:
    """A frozen part that sees the same inputs in every epoch, or that gradients are worked out for."""
    outermost = _outermost([one for one in run.trained_parts if one.num_params and not one.num_in_optimizer])
    for module in outermost:
        again, forward_s = module.repeated_inputs_share or 0.0, run.forward_s * run.forward_share(module)
        if again < 0.25 or run.epochs < 1.5:
            continue
        yield MeasuredCause(
            "frozen-recomputed", forward_s * (max(again, 1 - 1 / run.epochs) if again > 0.4 else again),
            f"{module.name} is frozen and sees the same inputs again in every epoch "
            f"({format_seconds(per(forward_s, run.num_steps))} a step)",
            _module_place(run, module), how=f"its forward pass, but for the first of {run.epochs:.1f} epochs",
            evidence={"repeated_inputs_share": again, "epochs": run.epochs},
        )  # fmt: skip
    wasted = [one for one in outermost if one.num_trainable and one.grad_enabled and one.output_requires_grad]
    if wasted:
        share = min(1.0, sum(map(run.forward_share, wasted)))
        yield MeasuredCause(
            "frozen-gradients", share * run.total_s("backward_s"),
            f"gradients are worked out for {wasted[0].name} ({format_count(wasted[0].num_trainable, 'parameter')}), which no "
            "optimizer moves",
            _module_place(run, wasted[0]), how="its part of the backward pass, by its part of the forward pass",
            evidence={"num_trainable": wasted[0].num_trainable, "share_of_forward": share, "remedy": "frozen-no-grad"},
        )  # fmt: skip


def _outermost(modules: list[ModuleRecord]) -> list[ModuleRecord]:
    """Those that are no part of another one, slowest first."""

    def inside(module: ModuleRecord) -> bool:
        return any(one.depth < module.depth and (not one.name or module.name.startswith(f"{one.name}.")) for one in modules)

    return sorted((one for one in modules if not inside(one)), key=lambda one: -one.seconds_per_step)


def _module_place(run: Figures, module: ModuleRecord) -> Place:
    file, line = (module.call_file, module.call_line) if module.call_file else (module.file, module.line)
    return Place(file, line, module.name) if file else run.line_of_stage("forward")


def _called_often(run: Figures) -> Causes:
    """A network, or a part of one, called many times in a step on equal inputs that could be one batch."""
    passes = max(run.accumulates, per(run.steps.total("batches"), run.num_steps), 1.0)
    looped = _outermost([one for one in run.trained_parts if one.calls_per_step >= 4 * passes and one.num_params])
    if not looped or looped[0].class_ in _STEPPED or (share := run.forward_share(looped[0])) < 0.3:
        return
    module, shape = looped[0], "×".join(map(str, looped[0].input_shape[1:]))
    yield MeasuredCause(
        "python-loop", share * (run.forward_s + run.total_s("backward_s")),
        f"{module.name} is called {module.calls_per_step / passes:.0f} times a batch, on {module.batch} of shape {shape}",
        _module_place(run, module),
        "put the parts into the batch dimension and call it once: (batch·tiles, channels, height, width), then give the result "
        "its tiles back",
        evidence={"calls_per_step": module.calls_per_step, "share_of_forward": share}, weight=0.7, computed=False,
    )  # fmt: skip


def _precision(run: Figures) -> Causes:
    roots = [one for one in run.trained_parts if one.depth == 0 and one.num_params and one.dtype == "float64"]
    for root in roots[:1]:
        file = root.call_file or root.file
        line = call_line(file, "set_default_dtype", "double", "float64")
        yield MeasuredCause(
            "double-precision", run.compute_s / 2,
            f"{root.name} computes in float64: twice the memory, and half as many numbers at a time",
            Place(file, line) if line else _module_place(run, root),
            how="half of forward, backward and optimizer, since float32 moves half the bytes",
            evidence={"default_dtype": run.facts.get("default_dtype"), "compute_s": run.compute_s},
        )  # fmt: skip


def _threads(run: Figures) -> Causes:
    """Torch with fewer threads than there are free cores, where steps are long enough for several to pay."""
    threads, cores = int(run.recording.machine.get("torch_threads") or 0), round(run.free_cores)
    if run.device or not 0 < threads < cores or per(run.compute_s, run.num_steps * run.accumulates) < 0.02:
        return
    at = run.facts.get("threads_set_at")
    by = "torch.set_num_threads" if at else "OMP_NUM_THREADS" if "OMP_NUM_THREADS" in run.facts else "torch's own choice"
    yield MeasuredCause(
        "few-torch-threads", run.compute_s * (1 - threads / cores),
        f"torch computes with {format_count(threads, 'thread')} ({by}), and {cores} of {run.cores} cores are free for it",
        Place(str(at[0]), int(at[1])) if at else run.line_of_stage("forward", "backward"),
        how="forward, backward and optimizer, if they divide evenly over the free cores", weight=0.5,
        evidence={"threads": threads, "cores": run.cores, "free_cores": run.free_cores, "remedy": f"torch-threads:{cores}"},
    )  # fmt: skip


def _small_batches(run: Figures) -> Causes:
    """So few samples a step that its overhead outweighs the arithmetic. Micro-batches of one step are no small batches."""
    samples, compute_s = per(run.steps.total("samples"), run.num_steps), per(run.compute_s, run.num_steps)
    if run.trained is None or run.accumulates >= 1.5 or not 0 < samples <= 4 or compute_s > 0.05:
        return
    place = made_at(run.trained)
    stepping_s = run.span_s - run.total_s("evaluate_s") - run.total_s("checkpoint_s") - run.making_s
    yield MeasuredCause(
        "small-batches", stepping_s * (1 - samples / 16),
        f"{format_count(round(samples), 'sample')} a step, {format_seconds(compute_s)} each time: most of it is what a step "
        "costs anyway",
        place, how="steps of 16 samples that take as long as these",
        evidence={"batch": samples, "compute_s_per_step": compute_s, **_changed(place, batch_size="32")},
    )  # fmt: skip


def _optimizer(run: Figures) -> Causes:
    """An optimizer that moves every row of large tables although a batch touches few of them."""
    dense = [one for one in run.trained_parts if one.num_in_optimizer and not one.detail.get("sparse")]
    tables = [one for one in dense if one.class_.startswith("Embedding") and one.output_width]
    table = max(tables, key=lambda one: one.num_params, default=None)
    rows = table.num_params // table.output_width if table else 0
    touched = math.prod(table.input_shape) if table and table.input_shape else rows
    if table is None or touched > 0.1 * rows:
        return
    moved = sum(one.num_params for one in run.trained_parts if one.depth == 0) or table.num_params
    share = (1 - touched / rows) * min(1.0, sum(one.num_params for one in tables) / moved)
    spent_s = run.stages["optimizer"] + max(0.0, run.total_s("backward_s") - 2 * run.forward_s)
    yield MeasuredCause(
        "slow-optimizer", share * spent_s,
        f"every step makes a gradient for all {rows:,} rows of {table.name} and the optimizer moves them all, though a batch "
        f"touches at most {touched:,}",
        run.line_of_stage("optimizer"),
        "nn.Embedding(…, sparse=True) with torch.optim.SparseAdam (or SGD, Adagrad) for the tables, your optimizer for the rest",
        "the optimizer, and what backward takes beyond twice the forward pass, for rows that no sample touches",
        {"rows": rows, "touched": touched, "optimizer_s": run.stages["optimizer"]},
    )  # fmt: skip


def _padding(run: Figures) -> Causes:
    loader = run.trained
    if loader is None or (loader.padded_share or 0.0) < 0.15:
        return
    share, file = float(loader.padded_share or 0.0), run.line_of_stage("forward", "backward").file or loader.made_file
    line = keyword_line(file, "padding", "max_length")
    if line is None and _own_collate(loader):
        file = loader.collate_file
        line = call_line(file, "full", "zeros", "pad", "new_zeros", "new_full")
    yield MeasuredCause(
        "padded-batches", share * run.compute_s,
        f"{share:.0%} of the columns of a batch are padding in every row, and the network works on them",
        Place(file, line) if line else made_at(loader), how="the same share of forward, backward and optimizer",
        evidence={"padded_share": share, "compute_s": run.compute_s},
    )  # fmt: skip


def _ignored(run: Figures) -> Causes:
    """A layer as wide as a vocabulary that runs at positions whose labels the loss leaves out."""
    share = (run.trained.ignored_share if run.trained else None) or 0.0
    wide = [one for one in run.trained_parts if one.class_ == "Linear" and one.output_width >= 1000 and len(one.input_shape) == 3]
    if not wide or share < 0.5:
        return
    head = max(wide, key=lambda one: one.seconds_per_step)
    yield MeasuredCause(
        "ignored-positions", share * run.forward_share(head) * (run.forward_s + run.total_s("backward_s")),
        f"{share:.0%} of the labels are -100, which the loss leaves out, and {head.name} works out {head.output_width:,} scores "
        "for each of them",
        _module_place(run, head), how="as large a part of what this layer takes of forward and backward",
        evidence={"ignored_share": share, "width": head.output_width},
    )  # fmt: skip


def _zeros(run: Figures) -> Causes:
    """A large matrix that holds almost only zeros, multiplied as if it were full."""
    shares = {f"{one.class_}.forward": one.detail["zero_share"] for one in run.trained_parts if one.detail.get("zero_share")}
    for group in run.grouped([look for look in run.looks if look.row.stage == "forward" and look.row.phase == "step"]):
        share = shares.get(group.place.function, 0.0)
        if share < _ZEROS or group.source is None or not group.source.multiplies:
            continue
        yield MeasuredCause(
            "dense-zeros", group.seconds * (1 + per(run.total_s("backward_s"), run.forward_s)) * (1 - _SPARSE_COST * (1 - share)),
            f"the product is with a matrix of {share:.1%} zeros", group.place,
            how=f"the line, and as large a part of backward, if a sparse product takes {_SPARSE_COST} times as long a number",
            evidence={"zero_share": share},
        )  # fmt: skip


def _graphs(run: Figures) -> Causes:
    """Results kept with the graphs that made them: a step, or the backward passes within it, take longer and longer."""
    kept, walls = list(run.facts.get("kept_graphs") or ()), run.steps.each("wall_s")[2:]
    backward = run.line_of_stage("backward")
    source = source_line(backward.file, backward.line) if backward.file else None
    retains = source is not None and source.keyword("retain_graph") == "True"
    sizes = [look["tensors"] for look in kept]  # that of a recurrent network goes up and down with the length of its texts
    grows = sizes == sorted(sizes) and len(kept) > 1 and sizes[-1] >= sizes[0] + max(8, (kept[-1]["step"] - kept[0]["step"]) // 2)
    if not walls or not (grows or retains):
        return
    usual_s = sorted(walls)[len(walls) // 8]
    pairs = zip(walls, run.steps.column("steps")[2:], strict=True)
    grown_s = sum((wall_s - usual_s) * number for wall_s, number in pairs if wall_s > usual_s)
    if retains:
        grown_s = max(grown_s, run.total_s("backward_s") - 2 * run.forward_s)
    holder = (kept[-1].get("holder") or {}) if grows else {}
    memory = run.steps.column("rss_bytes")
    more_bytes = max(0, memory[-1] - memory[min(3, len(memory) - 1)])
    is_slower = grown_s >= NOTED * run.span_s
    yield MeasuredCause(
        "growing-graph", grown_s,
        f"{holder.get('name') or ('retain_graph=True' if retains else 'a variable')} keeps earlier results with the graphs that "
        f"made them; memory grew by {format_bytes(more_bytes)}, a step from {format_seconds(usual_s)} to "
        f"{format_seconds(run.step_s(slice(-5, None)))}",
        Place(holder.get("file", ""), int(holder.get("line", 0))) if holder else backward,
        "detach what is carried over or kept: state.detach(), loss.detach(), or loss.item() once an epoch",
        "backward beyond twice the forward pass" if retains else "what steps took beyond the short ones",
        {"kept": kept, "memory_bytes": more_bytes}, computed=is_slower, always=grows and more_bytes >= _MUCH_BYTES,
    )  # fmt: skip


def _faults(run: Figures) -> Causes:
    """Memory handed back to the system after every operation and faulted in again: glibc's allocator, on the CPU."""
    inline = [loader for loader in run.loaders if not loader.num_workers]
    system_s = max(0.0, run.steps.total("system_s") - sum(loader.fetch_system_s for loader in inline))
    each = per(run.steps.total("minor_faults") - sum(loader.fetch_minor_faults for loader in inline), run.num_steps)
    share = per(system_s, system_s + run.steps.total("user_s"))
    if run.device or each < 20_000 or share < _OF_THE_MACHINE:
        return
    contended = max(1.0, per(run.compute_s, system_s + run.steps.total("user_s")))  # a fault waits for a core as all else does
    yield MeasuredCause(
        "large-allocation", min(run.compute_s * share, each * run.num_steps * _FAULT_S * contended),
        f"{each:,.0f} page faults a step ({format_bytes(each * 4096)} fetched anew from the system) take {share:.0%} of the CPU "
        "time",
        run.line_of_stage("forward", "backward"),
        "keep freed memory in the process (MALLOC_TRIM_THRESHOLD_=-1 MALLOC_MMAP_THRESHOLD_=4294967296 in front of the command), "
        "or reuse buffers",
        "page faults, at most by what one takes on an idle machine", {"faults_per_step": each, "system_s": system_s},
    )  # fmt: skip


def _anomaly(run: Figures) -> Causes:
    at = run.facts.get("anomaly_at")
    if run.facts.get("anomaly"):
        yield MeasuredCause(
            "costly-call", run.forward_s + run.total_s("backward_s"),
            "autograd's anomaly detection is on: each operation keeps a traceback, and each gradient is searched for NaN",
            Place(str(at[0]), int(at[1])) if at else run.line_of_stage("backward"),
            "take it out; it is for finding where a NaN comes from, not for training", "forward and backward",
            {"remedy": "anomaly-off"},
        )  # fmt: skip


# --- beside the step --------------------------------------------------------------------------------------------------


def _checkpoint(run: Figures) -> Causes:
    """Checkpoints more often than once an epoch, or written slowly: packed, or to a slow disk."""
    rows = run.calls("save", phases=("step", "checkpoint", "outside", "evaluate"))
    saves, spent_s, written = sum(row.count for row in rows), run.total_s("checkpoint_s"), sum(row.amount for row in rows)
    if not saves:
        return
    often_s = spent_s * (1 - run.epochs / saves)
    slow_s = spent_s - saves * _SAVE_S - written / _SAVED_BYTES_PER_S if written else 0.0
    often = saves > 1.25 * run.epochs and often_s >= slow_s
    yield MeasuredCause(
        "slow-checkpoint", often_s if often else slow_s,
        f"{format_count(saves, 'checkpoint')} in {format_count(run.num_steps, 'step')}, "
        f"{format_seconds(per(spent_s, saves))} each, {format_bytes(written)} written",
        Place(rows[0].file, rows[0].line, rows[0].function),
        "" if often else "write it unpacked (no gzip or other compression: weights hardly shrink) to a local disk, and only what "
        "resuming needs",
        "saving, all but once an epoch" if often else "saving, but for writing as many bytes to a usual disk",
        {"saves": saves, "checkpoint_s": spent_s},
    )  # fmt: skip


def _evaluation(run: Figures) -> Causes:
    """Evaluation more often than once an epoch, one sample at a time, or with what only gradients need."""
    judged = [loader for loader in run.loaders if loader.evaluation]
    # starting workers again is another cause
    spent_s = max(0.0, run.total_s("evaluate_s") - sum(loader.startup_s for loader in judged if loader.num_workers))
    again = [loader.iterators - math.ceil(run.epochs) for loader in run.loaders if not loader.evaluation]
    passes = max([*(loader.iterators for loader in judged), *again], default=0)
    if not spent_s or passes <= 0:
        return
    samples, most = sum(loader.samples for loader in judged), max(judged, key=lambda loader: loader.batches, default=None)
    often = 1 - run.epochs / passes if passes > 1.5 * run.epochs else 0.0
    batch = min((loader.batch_size or 0 for loader in judged), default=0)
    batch = 1 if most is not None and most.samples == most.batches else batch  # `predict` of one sample, whatever its batch size
    small = 0 < batch <= max(1, ((run.trained.batch_size if run.trained else None) or 16) // 4)
    each_s = per(run.forward_s + run.inline_s + run.waited_s, run.steps.total("samples"))
    dear = max(0.0, 1 - per(each_s * samples, spent_s)) if small else 0.0
    keeps = [one for one in run.recording.modules if one.in_evaluation and one.grad_enabled and one.output_requires_grad]
    words = [f"runs {passes / run.epochs:.1f} times an epoch"] if often else []
    words += [f"shows {format_count(batch, 'sample')} at a time"] if small else []
    words += ["keeps what gradients need"] if keeps else []
    said = f"evaluation {', '.join(words)} and takes {per(spent_s, run.span_s):.0%} of the time"
    place = run.common_line("evaluate")
    evidence = {"evaluate_s": spent_s, "passes_per_epoch": passes / run.epochs, "batch_size": batch, "gradients": bool(keeps)}
    if often or small:
        code = "one-at-a-time" if batch == 1 else "slow-evaluation"
        how = "evaluation once an epoch, at training's cost for each sample"
        yield MeasuredCause(code, spent_s * (1 - (1 - often) * (1 - dear)), said, place, how=how, evidence=evidence)
    if keeps:
        more = {**evidence, "remedy": "inference-mode"}
        yield MeasuredCause("no-inference-mode", spent_s, said, place, weight=0.25, computed=False, evidence=more)


_RULES: tuple[Callable[[Figures], Causes], ...] = (
    _workers, _restarted, _collate, _decoding, _full_size, _shrunk_later, _frozen, _called_often, _precision, _threads,
    _small_batches, _optimizer, _padding, _ignored, _zeros, _graphs, _faults, _anomaly, _checkpoint, _evaluation,
)  # fmt: skip
