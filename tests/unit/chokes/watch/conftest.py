"""Hooks that a test puts into this process are taken away after it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from unchoke.chokes.watch import hooks

SUPPORTS = ("supports_dir_fd", "supports_effective_ids", "supports_fd", "supports_follow_symlinks")


def _tables() -> list[Any]:
    """Tables that hooks add to: callbacks that wait for imports, what `os` says of its functions, torch's own global hooks."""
    found: list[Any] = [hooks._waiting, *(getattr(os, name) for name in SUPPORTS)]
    if "torch" in sys.modules:
        from torch.nn.modules import module
        from torch.optim import optimizer

        found += [module._global_forward_hooks, module._global_forward_pre_hooks]
        found += [optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks]
    return found


@pytest.fixture
def hooks_made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[hooks.Hook]]:
    """The hooks that were put in place so far; they are undone after the test, the last one first."""
    made: list[hooks.Hook] = []
    init = hooks.Hook.__init__

    def init_and_keep(hook: hooks.Hook, *args: Any) -> None:
        init(hook, *args)
        made.append(hook)

    monkeypatch.setattr(hooks.Hook, "__init__", init_and_keep)
    before = [(table, table.copy()) for table in _tables()]
    yield made
    for hook in reversed(made):
        hook.undo()
    for table, content in before:
        table.clear()
        table.update(content)
