"""What `unchoke tune` found: one verdict for each switch of a model, as it stands in `[tuned]` of `unchoke.toml`.

In: a workspace and the settings in force. Out: a `TuningVerdicts`, whose kept switches are used where nothing was typed, each a
`Choice` that says what was measured and when. Verdicts hold for the model, data, device and versions they were found with.
Nothing is measured here, and which switches exist is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from unchoke.core.choices import Choice
from unchoke.core.errors import UsageError
from unchoke.core.workspace import Workspace

if TYPE_CHECKING:
    from unchoke.core.settings import Settings

VerdictKind = Literal["kept", "refused", "not tried"]
_MUST_AGREE = ("device", "driver", "torch", "openvino")
"""What verdicts hold for; the version of unchoke is written down beside it."""


@dataclass(frozen=True)
class Verdict:
    """The outcome of one switch: `now` is how it stands untuned, `value` what was tried instead.

    `ratio` is how many times as fast, with its 95 % interval; `equality` are the figures that say whether numbers stayed equal.
    `worth_from` is how many samples a run must go through until the switch has repaid its set-up.
    """

    switch: str
    verdict: VerdictKind
    reason: str
    now: Any = None
    value: Any = None
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    equality: dict[str, float] = field(default_factory=dict)
    worth_from: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values, what is not known left out."""
        found = {**vars(self), "equality": self.equality or None, "worth_from": self.worth_from or None}
        found["interval"] = list(self.interval) if self.interval else None
        return {name: value for name, value in found.items() if name != "switch" and value is not None}

    @classmethod
    def from_dict(cls, switch: str, values: Mapping[str, Any]) -> Verdict:
        interval = values.get("interval")
        return cls(**{**values, "switch": switch, "interval": None if interval is None else (interval[0], interval[1])})


@dataclass(frozen=True)
class TuningVerdicts:
    """The verdicts for one model. `found_on` names the device, its driver and the versions they were found with."""

    model: str
    data: str = ""
    date: str = ""
    found_on: dict[str, str] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    def kept(self, switch: str) -> Verdict | None:
        """The verdict on a switch that earned its place."""
        found = self.verdicts.get(switch)
        return found if found is not None and found.verdict == "kept" else None

    def choice(self, switch: str, *, num_samples: int | None = None) -> Choice | None:
        """The switch as a choice, if it is to be used; one that must repay its set-up only where enough samples are to come."""
        found = self.kept(switch)
        if found is None or (num_samples is not None and num_samples < found.worth_from):
            return None
        evidence = {"ratio": found.ratio, "interval": found.interval, "equality": found.equality, "tuned": self.date}
        return Choice(switch, found.value, f"tuned on {self.date}: {found.reason}", evidence)

    def outdated(self, found_on: Mapping[str, str], data: str) -> str:
        """What is no longer as it was when this was found, in words; empty if all of it still is."""
        changed = [
            f"{name} was {self.found_on.get(name) or 'none'}, now {found_on.get(name) or 'none'}"
            for name in _MUST_AGREE
            if self.found_on.get(name, "") != found_on.get(name, "")
        ]
        if Path(self.data).resolve() != Path(data).resolve():
            changed.append(f"the data was {self.data}")
        return "; ".join(changed)

    def to_dict(self) -> dict[str, Any]:
        return {
            "date": self.date,
            "data": self.data,
            "found_on": self.found_on,
            "switches": {name: verdict.to_dict() for name, verdict in self.verdicts.items()},
        }

    @classmethod
    def from_dict(cls, model: str, values: Mapping[str, Any]) -> TuningVerdicts:
        verdicts = {name: Verdict.from_dict(name, entry) for name, entry in values["switches"].items()}
        wrong = [name for name, verdict in verdicts.items() if verdict.verdict not in get_args(VerdictKind)]
        if wrong:
            raise ValueError(f"the verdict on {', '.join(wrong)} is none of {', '.join(get_args(VerdictKind))}")
        return cls(model, values["data"], values["date"], dict(values["found_on"]), verdicts)


def model_name(settings: Settings) -> str:
    """What verdicts are about: the network, where it is cut, and how pictures are shown to it."""
    shown = [f"{settings.encoder}, cut {settings.cut}"]
    shown += [f"{settings.input_px} px"] if settings.input_px else []
    shown += [f"{settings.streams}×({settings.tiles}) tiles"] if (settings.streams, settings.tiles) != (1, "1x1") else []
    shown += [f"weights {settings.weights}"] if settings.weights else []
    return ", ".join(shown)


def load_verdicts(workspace: Workspace, settings: Settings) -> TuningVerdicts | None:
    """What was found for the model the settings name, wherever and whenever that was; None if it was never tuned."""
    from unchoke.core.remembered import load_tuned, place_from_here

    model, table = model_name(settings), load_tuned(workspace)
    if model not in table:
        return None
    try:
        found = TuningVerdicts.from_dict(model, table[model])
        return replace(found, data=place_from_here(workspace, found.data))
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"[tuned] in {workspace.settings_file} cannot be read",
            code="bad-tuned-table",
            why=f"{type(error).__name__}: {error}",
            try_="remove the tables of [tuned]; unchoke tune writes them anew",
        ) from error


def save_verdicts(workspace: Workspace, tuned: TuningVerdicts) -> None:
    """Write the verdicts on one model; those on others stay."""
    from unchoke.core.remembered import load_tuned, save_tuned

    save_tuned(workspace, {**load_tuned(workspace), tuned.model: tuned.to_dict()})
