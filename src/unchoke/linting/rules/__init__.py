"""The rules, one per file, by name; and names as people type them. A rule's file is only imported when it is asked for.

`NAMES` is the list of all files; a rule's code is its file's name with dashes. A new rule is a new file and its name here.
In come codes and groups as typed, out go loaded rules or a usage error that names what was probably meant. Runs no rule.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

from unchoke.code.program import Program
from unchoke.core.errors import UsageError, list_some
from unchoke.linting.rule import Hit, Rule

NAMES = (
    "anomaly_mode", "batch_past_card", "bgr_rgb", "blank_on_error", "cache_after_random", "channels_last_unsafe",
    "compile_unsafe", "compressed_npz", "copied_each_run", "dataset_in_notebook", "decoded_for_labels", "eval_batch",
    "frozen_gradients", "frozen_recomputed", "graph_kept", "hard_coded_cuda", "heavy_augmentation", "history_in_memory",
    "host_sync", "images_in_list", "list_per_sample", "model_in_dataset", "network_mount", "no_checkpoint", "no_clear_session",
    "no_inference_mode", "no_main_guard", "no_mixed_precision", "no_prefetch", "no_workers", "non_atomic_save",
    "non_blocking_unsafe", "oversized_decode", "parsed_per_sample", "pin_without_cuda", "python_transform", "reopened_file",
    "repeated_decode", "start_method_at_import", "stat_per_sample", "table_scan", "tile_loop", "uneven_map",
    "unpicklable_dataset", "unsafe_load", "workers_restarted",
)  # fmt: skip
CODES = tuple(name.replace("_", "-") for name in NAMES)
GROUPS = ("input", "device", "resume", "process", "compute")
_NEAR = 0.5


@dataclass(frozen=True)
class LoadedRule:
    """A rule with its check and its page; `nits` says whether what hardly matters is wanted of it."""

    rule: Rule
    check: Callable[[Program], Iterator[Hit]]
    page: str
    nits: bool = True


def load_rule(code: str) -> LoadedRule:
    """The rule of this code."""
    module = import_module(f"unchoke.linting.rules.{code.replace('-', '_')}")
    return LoadedRule(module.RULE, module.check, (module.__doc__ or "").strip())


def all_rules() -> list[LoadedRule]:
    """Every rule there is, by group and then by code."""
    found = [load_rule(code) for code in CODES if find_spec(f"unchoke.linting.rules.{code.replace('-', '_')}")]
    return sorted(found, key=lambda loaded: (GROUPS.index(loaded.rule.group), loaded.rule.code))


def rule_named(code: str) -> LoadedRule:
    """The rule of this code; dashes and underscores are the same."""
    wanted = code.strip().lower().replace("_", "-")
    for loaded in all_rules():
        if loaded.rule.code == wanted:
            return loaded
    raise _unknown([code], [loaded.rule.code for loaded in all_rules()])


def split_names(typed: Iterable[str] | None) -> list[str]:
    """``["input,device", "host-sync"]`` as three names; a name that is neither a rule nor a group is a usage error."""
    names = [name.strip() for entry in typed or () for name in entry.split(",") if name.strip()]
    known = [*GROUPS, *(loaded.rule.code for loaded in all_rules())] if names else []
    unknown = [name for name in names if name not in known]
    if unknown:
        raise _unknown(unknown, known)
    return names


def _unknown(names: Sequence[str], known: Sequence[str]) -> UsageError:
    near = list(dict.fromkeys(match for name in names for match in difflib.get_close_matches(name.lower(), known, 3, _NEAR)))
    meant = f"did you mean {' or '.join(near[:3])}? " if near else ""
    return UsageError(
        f"no rule is called {list_some([repr(name) for name in names])}",
        why=f"{meant}rules are in the groups {', '.join(GROUPS)}",
        try_="unchoke lint --list-rules",
    )
