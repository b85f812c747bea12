"""Memory plans held against what happens: planned and measured peak, and a 4 GB card rehearsed.

Each case is planned as a run plans it near its limit (micro-batches tried in a process of their own). Then 20 optimizer steps
and an evaluation run at the planned sizes under the limit, in a fresh process; out-of-memory halvings are counted, and there
should be none. Beside it stands what counting says that the largest measured step takes at most: never less than was measured.

On CUDA the limit is the allocator's (a card of 4 GB less CUDA's context), arithmetic is float16 and flash attention is off, as on
cards of that size. On a CPU the process's own memory is what counts.

Usage: python benches/bench_budget.py [--limit 2GB] [--only NAME ...] [--smoke]
       PYTHONPATH=src python benches/bench_budget.py --device cuda --limit 4GB

Needs torch, timm and numpy beside `src/`. Weights are random and inputs noise: memory does not depend on either.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch

from unchoke.core.choices import Choice
from unchoke.core.errors import MachineError
from unchoke.core.events import ignore
from unchoke.core.torchvision_ready import prepare_torchvision
from unchoke.core.units import format_bytes, parse_bytes
from unchoke.features.cut import cut_network
from unchoke.features.encoders import bare_encoder
from unchoke.machine.backend import is_cpu
from unchoke.machine.memory.memory_plan import MemoryLimit, MemoryPlan, StepCost, render_costs, render_plan
from unchoke.machine.memory.memory_watch import Gauge
from unchoke.machine.memory.probe import Probe, probe
from unchoke.pixels.canvas import Canvas
from unchoke.pixels.tile_grid import TilePlan
from unchoke.training.data import Problem
from unchoke.training.network.estimate_memory import estimate_memory
from unchoke.training.network.loop_config import LoopConfig
from unchoke.training.network.memory_trial import MemoryTrial, run_trial
from unchoke.training.network.memory_trial import rehearse as rehearse_loop
from unchoke.training.network.photo_job import NetworkSpec, PhotoJob, SourceSpec, StoredActivations
from unchoke.training.network.plan_memory import plan_near
from unchoke.training.network.prepare_pixels import noise_pixels

STEPS = 20
TIMEOUT_S = 180.0


WHOLE, TWO_STREAMS = TilePlan(), TilePlan(2, 2, 2)


@dataclass(frozen=True)
class Case:
    name: str
    encoder: str
    cut: str
    batch: int
    input_px: int = 224
    tiles: TilePlan = WHOLE
    grad_ckpt: bool | None = None
    ema: float = 0.99


ON_CPU = (
    Case("lite0 -4", "tf_efficientnet_lite0", "-4", 48),
    Case("lite0 none", "tf_efficientnet_lite0", "none", 16),
    Case("lite0 none, checkpointed", "tf_efficientnet_lite0", "none", 16, grad_ckpt=True),
    Case("ViT-S/14 -4", "vit_small_patch14_dinov2", "-4", 16),
    Case("lite0 -4, two streams", "tf_efficientnet_lite0", "-4", 8, tiles=TWO_STREAMS),
)
ON_CARD = (
    Case("B0 -4", "efficientnet_b0", "-4", 256),
    Case("ViT-S/14 -4", "vit_small_patch14_dinov2", "-4", 128),
    Case("two streams ViT-B/14 518 px -4", "vit_base_patch14_dinov2", "-4", 4, 518, TWO_STREAMS),
    Case("two streams ViT-B/14 518 px none", "vit_base_patch14_dinov2", "none", 4, 518, TWO_STREAMS, grad_ckpt=True, ema=0.0),
)
SMOKE = (
    Case("tiny ViT -2, two streams", "test_vit", "-2", 24, 160, TWO_STREAMS),
    Case("tiny EfficientNet none, checkpointed", "test_efficientnet", "none", 16, 160, grad_ckpt=True),
)


def trial_of(case: Case, device: str, limit_bytes: int, *, on_cpu: bool) -> MemoryTrial:
    loop = LoopConfig(
        epochs=1,
        batch_size=case.batch,
        sub_batch=case.batch,
        eval_batch=case.batch,
        lr=1e-3,
        body_lr=1e-4,
        ema_decay=case.ema,
        dtype="float32" if on_cpu else "float16",
        memory_format="channels_last",
        threads=os.cpu_count() or 1 if not on_cpu else torch.get_num_threads(),
    )
    encoder = bare_encoder(case.encoder, input_px=case.input_px)
    network = NetworkSpec(case.encoder, case.cut, input_px=case.input_px, tiles=case.tiles, fusion="film")
    source: SourceSpec = noise_pixels(Canvas(case.tiles, encoder.spec.preprocess), "light" if case.tiles.is_whole else "none")
    if case.cut != "none":
        source = StoredActivations(None, (case.tiles.num_tiles, *cut_network(encoder, case.cut, verify=False).shape))
    names = tuple(f"class {number}" for number in range(8))
    problem = Problem("classification", names, np.arange(8), {"train": np.arange(8)}, list(names))
    job = PhotoJob(network=network, source=source, problem=problem, loop=loop, metric="loss", device=device)
    return MemoryTrial(job, limit_bytes=None if on_cpu else limit_bytes)


def as_on_a_small_card() -> None:
    """Kernels that cards of 4 GB have: no flash attention, in either library's form."""
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)


def try_sizes(trial: MemoryTrial) -> Iterator[StepCost | str]:
    """The body of a probe."""
    as_on_a_small_card()
    yield from run_trial(trial)


def count_once(asked: tuple[MemoryTrial, int]) -> Iterator[StepCost]:
    """What a step takes at most by counting, besides what is there before the network."""
    as_on_a_small_card()
    prepare_torchvision()
    import timm  # noqa: F401 (part of every run)

    (trial, batch), started_s = asked, time.monotonic()
    counted = estimate_memory(trial.job, batch=batch, eval_batch=batch, base_bytes=0).train(batch)
    yield replace(counted, seconds=time.monotonic() - started_s)


def rehearse(asked: tuple[MemoryTrial, LoopConfig]) -> Iterator[StepCost]:
    """20 steps at the planned sizes and an evaluation, as a run does them; how often memory ran out is among the parts."""
    as_on_a_small_card()
    trial, loop = asked
    on_cpu = is_cpu(torch.device(trial.job.device))
    with Gauge(torch.device(trial.job.device), limit_bytes=None if on_cpu else trial.limit_bytes) as gauge:
        rehearsal = rehearse_loop(trial.job, loop)
        seconds = rehearsal.train_steps(STEPS)
        rehearsal.evaluate(loop.eval_batch, 2)
    halvings = rehearsal.stepper.size.halvings + rehearsal.stepper.eval_size.halvings
    yield StepCost(loop.batch_size, gauge.peak_bytes, seconds, {"halvings": halvings, "steps": STEPS})


def run_case(case: Case, device: str, limit_bytes: int, *, steps: bool) -> dict[str, Any]:
    on_cpu = is_cpu(torch.device(device))
    trial = replace(trial_of(case, device, limit_bytes, on_cpu=on_cpu), most_evaluated=4 * case.batch)
    started_s = time.monotonic()
    limit = MemoryLimit(limit_bytes, True, Choice("memory", limit_bytes, "given"))
    plan = plan_near(
        trial, limit, sub_batch=None, grad_ckpt=case.grad_ckpt, can_checkpoint=True, on_event=ignore,
        target="bench_budget:try_sizes",
    )  # fmt: skip
    planned_s = time.monotonic() - started_s
    print(f"\n== {case.name} ({case.encoder}, --cut {case.cut}, {case.input_px} px, {case.tiles.text})")
    print("\n".join([render_plan(plan), *render_costs("steps", plan.measured)]), flush=True)
    counted = compare_counted(trial, plan)
    if not steps:
        return {"case": case.name, "counted": counted}
    run = rehearse_plan(trial, plan)
    off = (run.peak_bytes - plan.planned_bytes) / plan.planned_bytes
    print(f"{STEPS} steps   {format_bytes(run.peak_bytes)} measured, {format_bytes(plan.planned_bytes)} planned ({off:+.1%}), "
          f"{run.parts['halvings']} halvings", flush=True)  # fmt: skip
    return {
        "case": case.name,
        "limit_bytes": limit_bytes,
        "plan": {name: getattr(plan, name) for name in ("batch", "sub_batch", "eval_batch", "grad_ckpt", "planned_bytes")},
        "parts": dict(plan.parts),
        "probed": [one.batch for one in plan.measured],
        "counted": counted,
        "steps": {"num": STEPS, "peak_bytes": run.peak_bytes, "off": round(off, 4), "halvings": run.parts["halvings"]},
        "images_per_s": round(plan.batch / run.seconds, 1),
        "plan_s": round(planned_s, 1),
        "all_s": round(time.monotonic() - started_s, 1),
    }


def only(found: Probe) -> StepCost:
    if not found.values:
        raise SystemExit(f"a probe failed: {found.outcome}, {found.fact}")
    return cast("StepCost", found.values[0])


def compare_counted(trial: MemoryTrial, plan: MemoryPlan) -> dict[str, Any]:
    """The largest step that was measured, against what counting says that it takes at most."""
    most = max(plan.measured, key=lambda one: one.peak_bytes)
    found = only(probe("bench_budget:count_once", (trial, most.batch), timeout_s=TIMEOUT_S))
    bound = found.peak_bytes + most.parts["baseline"]
    held = f"at most {format_bytes(bound)} counted in {found.seconds:.1f} s, {format_bytes(most.peak_bytes)} measured"
    print(f"{most.batch} samples  {held} ({bound / most.peak_bytes:.2f}×)", flush=True)
    return {"batch": most.batch, "bound_bytes": bound, "measured_bytes": most.peak_bytes, "seconds": round(found.seconds, 2)}


def rehearse_plan(trial: MemoryTrial, plan: MemoryPlan) -> StepCost:
    loop = replace(
        trial.job.loop, batch_size=plan.batch, sub_batch=plan.sub_batch, eval_batch=plan.eval_batch, grad_ckpt=plan.grad_ckpt
    )
    return only(probe("bench_budget:rehearse", (trial, loop), timeout_s=TIMEOUT_S))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--limit", type=parse_bytes)
    parser.add_argument("--only", nargs="*", help="cases whose name contains one of these")
    parser.add_argument("--smoke", action="store_true", help="two tiny networks: does it run at all")
    parser.add_argument("--no-steps", action="store_true", help="leave the 20 steps out")
    args = parser.parse_args()
    on_cpu = is_cpu(torch.device(args.device))
    cases = SMOKE if args.smoke else ON_CPU if on_cpu else ON_CARD
    limit_bytes = args.limit or (2_000_000_000 if on_cpu else 4_000_000_000)
    found = []
    for case in cases:
        if args.only and not any(word in case.name for word in args.only):
            continue
        try:
            found.append(run_case(case, args.device, limit_bytes, steps=not args.no_steps))
        except MachineError as error:
            print(f"\n== {case.name}: {error.what}\n   {error.why}", flush=True)
            found.append({"case": case.name, "refused": error.what, "why": error.why})
        print(json.dumps(found[-1]), flush=True)
    counted = [case_found["counted"] for case_found in found if "counted" in case_found]
    runs = [case_found["steps"] for case_found in found if "steps" in case_found]
    name = f"{torch.get_num_threads()} CPU threads" if on_cpu else torch.cuda.get_device_name()
    print(json.dumps({
        "bench": "budget",
        "device": name,
        "torch": torch.__version__,
        "least_bound": round(min((one["bound_bytes"] / one["measured_bytes"] for one in counted), default=0.0), 2),
        "worst_off_of_runs": round(max((abs(run["off"]) for run in runs), default=0.0), 4),
        "halvings": sum(run["halvings"] for run in runs),
        "refused": [case_found["case"] for case_found in found if "refused" in case_found],
    }))  # fmt: skip


if __name__ == "__main__":
    main()
