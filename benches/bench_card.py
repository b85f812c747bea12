"""What a card is used for: unchoke against the plain way, and whole commands, on as many photos as you say.

Parts, each in a process of its own and selectable with `--only`:

    fit_whole     `fit` as a command in a fresh workspace, twice (cold, where nothing ran before), and twice in one process
    features      files to features, first and second pass in one process: the plain way, then `extract` in fresh workspaces
    train_all     every block trains, batches of 32: epoch 2 of a plain loop, then the warm epochs of `train --cut none`
    train_cut     the last four blocks train from cached activations: the warm epochs of `train --cut -4`
    memory_plan   what planning takes far from the limit, planned against measured, and a card of `--memory` rehearsed
    cached        a finished `fit` again, `train` with everything cached, and a job that does not exist
    profile_tune  `profile train` and `tune` as whole commands

"Warm" is a second run in the same process: what is loaded only once is paid by both sides in the first. The plain way is in
`plain_way.py`: its loop trains batch statistics too, which `train` leaves frozen by default, and evaluates nothing, so `train` is
given without its evaluation and with.

    python benches/bench_card.py                                                    # small, minutes on two cores
    PYTHONPATH=src python benches/bench_card.py --photos FOLDER --num 10000 --json card.json    # on a machine with a card
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any

from common import Stages, typed, unchoke
from guarded import Figures, Part, add_guards, run_parts
from photos import some_of, wanted_photos

FEW = 2_000
"""Photos are enough for parts whose time does not depend on them."""
NOT_STEPS = ("epoch", "evaluate", "checkpoint")


def photos_of(args: argparse.Namespace, most: int | None = None) -> Path:
    """Class folders; fewer photos than were asked for where a part can do with fewer."""
    work = Path(args.work)
    return some_of(wanted_photos(args.photos, work, num=args.num), work, num=most or args.num)


def fresh(args: argparse.Namespace, name: str) -> Path:
    """A workspace that is not there yet."""
    out = Path(args.work) / name
    shutil.rmtree(out, ignore_errors=True)
    return out


def device_words(args: argparse.Namespace) -> tuple[str, ...]:
    return ("--device", args.device) if args.device else ()


def fit_whole(args: argparse.Namespace, figures: Figures) -> None:
    photos, words = photos_of(args), device_words(args)
    for name in ("first", "again"):
        result, seconds = unchoke("fit", str(photos), "--out", str(fresh(args, "fit")), *words)
        figures.say(f"command, {name}", seconds, "s")
        figures.say(f"command, {name}: stages", result["timings"], "s")
    import unchoke as ours

    for name in ("first", "second"):
        out, started = fresh(args, "fit"), time.perf_counter()
        done = ours.fit(photos, out=out, device=args.device, on_event=Stages())
        figures.say(f"in one process, {name}", time.perf_counter() - started, "s")
        figures.say(f"in one process, {name}: stages", done.record["timings"], "s")
    figures.say("its own chokes", [finding["code"] for finding in done.record["chokes"]])
    figures.say("its choices", {one["name"]: one["value"] for one in done.record["choices"]})


def features(args: argparse.Namespace, figures: Figures) -> None:
    from plain_way import device_of, let_go, plain_features

    import unchoke as ours

    photos, device = photos_of(args), device_of(args.device)
    plain = plain_features(photos, device)
    let_go(device)
    for name, rate in zip(("first", "warm"), plain, strict=True):
        figures.say(f"plain way, {name}", rate, "images/s")
    for name in ("first", "warm"):
        stages, started = Stages(), time.perf_counter()
        done = ours.extract(photos, out=fresh(args, "extract"), device=args.device, on_event=stages)
        wall_s = time.perf_counter() - started
        alone_s, checked_s = stages.seconds["extract"], stages.seconds["extract"] + stages.seconds.get("check", 0.0)
        figures.say(f"extract alone, {name}", done.num_images / alone_s, "images/s")
        figures.say(f"check and extract, {name}", done.num_images / checked_s, "images/s")
        figures.say(f"whole call, {name}", done.num_images / wall_s, "images/s")
        figures.say(f"stages, {name}", stages.seconds, "s")
    figures.say("extract alone to the plain way, warm", done.num_images / alone_s / plain[-1], "times")
    figures.say("check and extract to the plain way, warm", done.num_images / checked_s / plain[-1], "times")


def warm_rates(record: dict[str, Any]) -> tuple[float, float]:
    """Images per second of the epochs after the first: of the steps alone, and with evaluation and checkpoints."""
    epochs = record["timeline"]["train"]["epochs"][1:]
    seen = len(epochs) * record["data"]["splits"]["train"]
    steps_s = sum(seconds for row in epochs for stage, seconds in row.items() if stage not in NOT_STEPS)
    whole_s = sum(seconds for row in epochs for stage, seconds in row.items() if stage != "epoch")
    return seen / steps_s, seen / whole_s


def training(args: argparse.Namespace, figures: Figures, **options: Any) -> float:
    """Two runs of `train` in one process; the rate of the second, without evaluation."""
    import unchoke as ours

    photos, out, alone = photos_of(args), fresh(args, "train"), 0.0
    for seed, name in enumerate(("first run", "warm")):
        started = time.perf_counter()
        done = ours.train(photos, out=out, seed=seed, device=args.device, on_event=Stages(), **options)
        seconds, record = time.perf_counter() - started, done.record
        alone, whole = warm_rates(record)
        figures.say(f"train, {name}: steps", alone, "images/s")
        figures.say(f"train, {name}: with evaluation", whole, "images/s")
        figures.say(f"train, {name}: whole call", seconds, "s")
        figures.say(f"train, {name}: stages", record["timings"], "s")
        figures.say(f"train, {name}: last epoch", record["timeline"]["train"]["epochs"][-1], "s")
    figures.say("batch", record["training"]["loop"]["batch_size"])
    figures.say("its own chokes", [finding["code"] for finding in record["chokes"]])
    figures.say("its choices", {one["name"]: one["value"] for one in record["choices"]})
    return alone


def train_all(args: argparse.Namespace, figures: Figures) -> None:
    from plain_way import device_of, let_go, plain_training

    device = device_of(args.device)
    plain = plain_training(photos_of(args), device)
    let_go(device)
    for name, rate in zip(("first epoch", "warm"), plain, strict=True):
        figures.say(f"plain loop, {name}", rate, "images/s")
    rate = training(args, figures, cut="none", epochs=args.epochs, batch_size=32)
    figures.say("steps to the plain loop, warm", rate / plain[-1], "times")


def train_cut(args: argparse.Namespace, figures: Figures) -> None:
    training(args, figures, cut="-4", epochs=args.epochs)


def memory_plan(args: argparse.Namespace, figures: Figures) -> None:
    """Commands, because a limit on the allocator stays with the process it was set in."""
    photos, out = str(photos_of(args)), fresh(args, "memory")
    words = (photos, "--cut", "none", "--epochs", str(args.epochs), "--batch-size", "32", "--out", str(out), *device_words(args))
    rates = []
    for seed, (name, limit) in enumerate((("free", ()), (args.memory, ("--memory", args.memory)))):
        result, seconds = unchoke("train", *words, "--seed", str(seed), *limit)
        record = json.loads(Path(result["report"]).with_name("record.json").read_text(encoding="utf-8"))
        memory = record["memory"]
        rates.append(warm_rates(record)[0])
        figures.say(f"{name}: planning memory", record["training"]["seconds"].get("planning memory"), "s")
        figures.say(f"{name}: planned", megabytes(memory.get("planned_bytes")), "MB")
        figures.say(f"{name}: measured", megabytes(memory.get("measured_bytes")), "MB")
        figures.say(f"{name}: halved for lack of memory", record["training"]["out_of_memory_halvings"], "times")
        figures.say(f"{name}: steps", rates[-1], "images/s")
        figures.say(f"{name}: whole command", seconds, "s")
    figures.say(f"rate with {args.memory} to that without", rates[1] / rates[0], "times")


def megabytes(num_bytes: float | None) -> float | None:
    return None if num_bytes is None else num_bytes / 1e6


def cached(args: argparse.Namespace, figures: Figures) -> None:
    photos, out = str(photos_of(args, FEW)), fresh(args, "cached")
    words = (photos, "--out", str(out), *device_words(args))
    for name, command in (
        ("fit, for the first time", ("fit", *words)),
        ("fit, done already", ("fit", *words)),
        ("train, done already", ("train", *words)),
        ("train with another seed, features cached", ("train", *words, "--seed", "1")),
    ):
        result, seconds = unchoke(*command)
        figures.say(name, seconds, "s")
        figures.say(f"{name}: done already", result["already_done"])
    done, seconds = typed("extract", *words, "--job", "img_none")
    figures.say("a job that does not exist", seconds, "s")
    figures.say("a job that does not exist: exit code", done.returncode)


def profile_tune(args: argparse.Namespace, figures: Figures) -> None:
    photos = str(photos_of(args, FEW))
    for name, command in (
        ("profile train", ("profile", "train", photos, "--cut", "none", "--batch-size", "32")),
        ("tune", ("tune", photos, "--cut", "-4", "--minutes", str(args.minutes))),
    ):
        done, seconds = typed(*command, "--out", str(fresh(args, "profile-tune")), *device_words(args))
        figures.say(name, seconds, "s")
        figures.say(f"{name}: exit code", done.returncode)
        if done.returncode:
            figures.say(f"{name}: last words", (done.stdout + done.stderr)[-1500:])


PARTS = {
    "fit_whole": Part(fit_whole, limit_s=240),
    "features": Part(features, limit_s=180),
    "train_all": Part(train_all, limit_s=240),
    "train_cut": Part(train_cut, limit_s=180),
    "memory_plan": Part(memory_plan, limit_s=300),
    "cached": Part(cached, limit_s=180),
    "profile_tune": Part(profile_tune, limit_s=300),
}
"""In this order: the first has to be the first on the machine for its first command to be cold."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], help="a part; repeat it for several")
    parser.add_argument("--photos", help="class folders with photos; left out, the demo's, or crops of them")
    parser.add_argument("--num", type=int, default=64, help="how many photos")
    parser.add_argument("--device", help="as unchoke's own option; left out, what it chooses")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--memory", default="4GB", help="the smaller card that is rehearsed")
    parser.add_argument("--minutes", type=float, default=0.5, help="for tune")
    parser.add_argument("--work", default="bench-out", help="folder for photos and workspaces")
    parser.add_argument("--json", help="where all figures are written")
    add_guards(parser)
    args = parser.parse_args()
    photos_of(args)
    run_parts("card", PARTS, args, only=args.only)


if __name__ == "__main__":
    main()
