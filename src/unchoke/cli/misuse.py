"""Words of other tools lead to ours; wrong usage is reported like every other error: what, why, try.

An option of another tool that means exactly what one of ours means is taken for it, with a note. For the rest: in come the
parser's complaint and the words that were typed, out goes a `UsageError` about all unknown options at once, whose last line is,
where that can be known, the same command with the right words in it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

import typer

from unchoke.core.errors import UsageError, list_some

PARSER_ERROR: type[Exception] = typer.BadParameter.__mro__[2]
"""What the parser raises: typer has it from click, or from a copy of its own."""

_SPELLINGS = {
    "--workers": "num-workers n-workers jobs num-jobs j threads num-threads dataloader-num-workers",
    "--device": "device-type accelerator",
    "--devices": "gpus num-gpus num-devices nproc nproc-per-node world-size",
    "--lr": "learning-rate lr0 base-lr init-lr max-lr",
    "--batch-size": "batch bs b batchsize train-batch-size per-device-train-batch-size mini-batch-size",
    "--eval-batch": "eval-batch-size val-batch-size test-batch-size per-device-eval-batch-size",
    "--input-px": "img-size image-size imgsz img input-size resolution crop-size px",
    "--encoder": "model model-name arch backbone network net architecture",
    "--weights": "pretrained-weights checkpoint ckpt ckpt-path checkpoint-path",
    "--out": "output output-dir out-dir save-dir project o workdir work-dir logdir log-dir",
    "--epochs": "epoch num-epochs max-epochs n-epochs num-train-epochs",
    "--weight-decay": "wd l2",
    "--warmup": "warmup-epochs",
    "--label-smoothing": "smoothing",
    "--mixup": "mixup-alpha",
    "--patience": "early-stopping early-stop early-stopping-patience early-stopping-rounds",
    "--clip": "clip-grad clip-grad-norm max-grad-norm gradient-clip-val grad-clip",
    "--ema": "ema-decay model-ema model-ema-decay",
    "--train-precision": "amp fp16 bf16 half mixed-precision dtype",
    "--grad-ckpt": "gradient-checkpointing grad-checkpointing activation-checkpointing checkpointing",
    "--folds": "cv kfold k-fold k-folds num-folds n-folds",
    "--val-share": "val-split val-size validation-split val-fraction valid-pct",
    "--test-share": "test-split test-size test-fraction",
    "--cut": "freeze freeze-layers unfreeze trainable-layers",
    "--seed": "random-seed manual-seed random-state",
    "--images": "image-dir image-folder images-dir img-dir image-root",
    "--label": "label-col label-column class-column y-col",
    "--target": "target-col target-column targets",
    "--path": "path-col path-column file-column filename-column x-col",
    "--id": "id-col id-column image-id",
    "--class-weights": "class-weight balanced",
    "--augment": "aug augmentation augmentations",
    "--memory": "max-memory memory-limit vram",
    "--compile": "torch-compile torchcompile",
    "--dry-run": "dryrun simulate",
    "--tile-size": "tile window window-size tilesize",
    "--patch-size": "patch patchsize",
    "--sub-batch": "grad-accum gradient-accumulation gradient-accumulation-steps accumulate accumulate-grad-batches accum-iter "
    "grad-accum-steps micro-batch micro-batch-size update-freq",
}
_OURS = {word: ours for ours, words in _SPELLINGS.items() for word in words.split()}
_OTHER_VALUES = {
    "--sub-batch": "a step accumulates micro-batches of --sub-batch samples: 4 of them in a batch of 32 are --sub-batch 8",
    "--cut": "the cut says what trains: end (heads), -4 (the last 4 blocks), none (everything)",
    "--train-precision": "it takes f32, bf16 or f16",
    "--devices": "it takes the number of processes that train together; one device is --device cuda:0",
}
"""Where ours takes another value than what the word takes elsewhere."""
_OTHER_WORDS = {"early-stopping", "early-stop", "model-ema", "checkpoint", "ckpt", "ckpt-path", "checkpoint-path", "project",
                "pretrained-weights", "class-weight", "balanced", "aug", "augmentation", "augmentations", "accelerator",
                "crop-size"}  # fmt: skip
"""Words that are switches elsewhere, or mean something else there."""
_POSITIONAL = {"data", "data-dir", "data-path", "dataset", "dataset-path", "train-dir", "source", "root", "data-root"}
_NEEDLESS = {"resume": "the same command goes on from where it was", "continue": "the same command goes on from where it was"}


def take_aliases(command: Any, words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The words after a command with our options in the place of those that mean the same elsewhere; and which were replaced."""
    taken, replaced = list(words), dict[str, str]()
    for place, option in _unknown_options(command, words):
        ours = _ours(command, option)
        word = option.lstrip("-").replace("_", "-").lower()
        if ours and ours not in _OTHER_VALUES and word not in _OTHER_WORDS:
            taken[place] = ours + words[place][len(option) :]
            replaced[option] = ours
    return taken, replaced


def _unknown_options(command: Any, words: Sequence[str]) -> list[tuple[int, str]]:
    """Places and names of the words that look like options and are none of this command's."""
    names = {name: one for one in command.params for name in (*one.opts, *one.secondary_opts) if name.startswith("-")}
    found, is_value = list[tuple[int, str]](), False
    for place, word in enumerate(words):
        if word == "--" and not is_value:
            break
        name = word.partition("=")[0]
        if not is_value and re.match(r"--?[A-Za-z]", word) and name not in names:
            found.append((place, name))
        is_value = not is_value and word in names and not names[word].is_flag
    return found


def _ours(command: Any, option: str) -> str:
    """What an option of another tool is called here; "" where there is no such thing."""
    known, word = _options(command), option.lstrip("-").replace("_", "-").lower()
    meant = _OURS.get(word, f"--{word}")
    if meant in known:
        return meant
    return next((name for name in ("--tile-size", "--patch-size") if name in known), "") if meant == "--input-px" else ""


def explain_misuse(error: Any, words: Sequence[str]) -> UsageError:
    """The parser's complaint in three lines."""
    command = error.ctx.command_path if getattr(error, "ctx", None) else " ".join(["unchoke", *words[:1]])
    option = getattr(error, "option_name", None)
    if option and "No such option" in str(error.message):
        unknown = [name for _, name in _unknown_options(error.ctx.command, words)] or [str(option)]
        found = {name: _explain_option(error, name, command) for name in dict.fromkeys(unknown)}
        what = f"{command} has no option {option}" if len(found) == 1 else f"{command} has no options {', '.join(found)}"
        whys, retyped = [why for why, _, _ in found.values()], list(words)
        if len(found) > 1:
            whys = [f"{name}: {why}" for name, (why, _, _) in found.items()]
        for name, (_, right, _) in found.items():
            same = [(place, word) for place, word in enumerate(retyped) if word == name or word.startswith(f"{name}=")]
            for place, word in reversed(same):
                retyped[place : place + 1] = [right + word[len(name) :]] if right else []
        stop = next((try_ for _, _, try_ in found.values() if try_), "")
        return UsageError(what, code="unknown-option", why="; ".join(whys), try_=stop or shlex.join(["unchoke", *retyped]))
    if unknown_command := re.match(r"No such command '(.*?)'", str(error.message)):
        known = list(error.ctx.command.commands)
        near = get_close_matches(unknown_command[1], known, n=1, cutoff=0.6)
        why = f"the nearest is {near[0]}" if near else f"there are {', '.join(known)}"
        retyped = [near[0] if near and word == unknown_command[1] else word for word in words]
        try_ = shlex.join(["unchoke", *retyped]) if near else f"{command} --help"
        return UsageError(f"{command} has no command {unknown_command[1]}", code="unknown-command", why=why, try_=try_)
    text = error.format_message().strip().rstrip(".").replace("Value error, ", "").replace("Input should be", "should be")
    what = text[:1].lower() + text[1:].replace(", unable to parse string as an integer", "")
    names = getattr(getattr(error, "param", None), "opts", ())
    after = [value for word, value in pairwise(words) if word in names and word.startswith("-")]
    return UsageError(
        what + (f" (got {after[-1]!r})" if after else ""),
        code="misused-command",
        why=str(getattr(getattr(error, "param", None), "help", None) or "the command could not be read as typed"),
        try_=f"{command} --help-all",
    )


def _explain_option(error: Any, option: str, command: str) -> tuple[str, str, str]:
    """Why there is no such option; what to type in its place; and what to type instead of the whole, where that is another."""
    known = _options(error.ctx.command)
    word = option.lstrip("-").replace("_", "-").lower()
    elsewhere = _commands_with(error.ctx.find_root().command, "unchoke")
    meant = _OURS.get(word, f"--{word}")
    ours = _ours(error.ctx.command, option)
    if not ours and meant not in elsewhere:  # the nearest spelling, unless the word is an option of another command
        ours = next(iter(get_close_matches(f"--{word}", sorted(known), n=1, cutoff=0.8)), "")
    if ours in _OTHER_VALUES and word in _OURS:
        return f"{ours} is the nearest: {_OTHER_VALUES[ours]}", ours, f"{command} --help-all"
    if ours:
        return f"it is called {ours} here", ours, ""
    if word in _POSITIONAL:
        return "the data comes first, without an option", "", f"{command} DATA"
    if word in _NEEDLESS:
        return f"none is needed: {_NEEDLESS[word]}", "", ""
    why = (
        f"{meant} is an option of {list_some(elsewhere[meant], limit=3)}" if meant in elsewhere else "no option is spelt like it"
    )
    return why, "", f"{command} --help-all, which lists its options"


def _options(command: Any) -> set[str]:
    return {name for one in command.params for name in (*one.opts, *one.secondary_opts) if name.startswith("--")}


def _commands_with(command: Any, path: str) -> dict[str, list[str]]:
    """Every option, and the commands that have it, as typed."""
    found: dict[str, list[str]] = {}
    for name, inner in getattr(command, "commands", {}).items():
        for option, paths in _commands_with(inner, f"{path} {name}").items():
            found.setdefault(option, []).extend(paths)
        if not hasattr(inner, "commands") and not inner.hidden:
            for option in _options(inner):
                found.setdefault(option, []).append(f"`{path} {name}`")
    return found
