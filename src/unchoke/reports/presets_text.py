"""The presets as plain text: what each is for, what it expects, and how to use one. Nothing here prints."""

from __future__ import annotations

from collections.abc import Iterable

from unchoke.core.presets import Preset
from unchoke.reports.layout import visible, wrap

_INDENT = " " * 4


def render_presets(presets: Iterable[Preset]) -> str:
    """One paragraph a preset, and the next commands."""
    blocks = [_block(preset) for preset in presets]
    ending = "next      unchoke presets show NAME, or unchoke fit DATA --preset NAME"
    return "\n\n".join([*blocks, ending])


def _block(preset: Preset) -> str:
    lines = [visible(preset.name), wrap(preset.about, indent=_INDENT), wrap(f"expects {preset.expects}", indent=_INDENT)]
    return "\n".join(line for line in lines if line)
