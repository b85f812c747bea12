"""The rules, one per file, by name. A rule's file is only imported when it is asked for.

`NAMES` is the list of all files; a rule's code is its file's name with dashes. A new rule is a new file and its name here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module

from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule

NAMES = (
    "anomaly_mode",
    "batch_past_card",
    "bgr_rgb",
    "blank_on_error",
    "cache_after_random",
    "channels_last_unsafe",
    "compile_unsafe",
    "compressed_npz",
    "dataset_in_notebook",
    "eval_batch",
    "frozen_gradients",
    "frozen_recomputed",
    "graph_kept",
    "hard_coded_cuda",
    "heavy_augmentation",
    "history_in_memory",
    "host_sync",
    "images_in_list",
    "list_per_sample",
    "no_checkpoint",
    "no_inference_mode",
    "no_main_guard",
    "no_workers",
    "non_atomic_save",
    "non_blocking_unsafe",
    "oversized_decode",
    "parsed_per_sample",
    "pin_without_cuda",
    "python_transform",
    "reopened_file",
    "repeated_decode",
    "start_method_at_import",
    "stat_per_sample",
    "tile_loop",
    "uneven_map",
    "unpicklable_dataset",
    "unsafe_load",
)
CODES = tuple(name.replace("_", "-") for name in NAMES)


@dataclass(frozen=True)
class LoadedRule:
    """A rule with its check and its page."""

    rule: Rule
    check: Callable[[Program], Iterator[Hit]]
    page: str


def load_rule(code: str) -> LoadedRule:
    """The rule of this code."""
    module = import_module(f"unchoke.linting.rules.{code.replace('-', '_')}")
    return LoadedRule(module.RULE, module.check, (module.__doc__ or "").strip())
