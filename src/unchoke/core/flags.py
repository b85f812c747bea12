"""How a setting is typed: `batch_size` as ``--batch-size``."""

from __future__ import annotations

_SINGULAR = {"sums": "sum", "target_weights": "target-weight"}


def option(name: str) -> str:
    """The option of a setting; one that takes the entries of a table one by one is in the singular."""
    return "--" + _SINGULAR.get(name, name.replace("_", "-"))


def switched_off(name: str) -> str:
    """The option that says no to a yes-or-no setting."""
    return "--no-" + option(name).removeprefix("--")
