"""What every command works with: the workspace it owns, the settings in force, the machine's policy, clocks and events."""

from __future__ import annotations

import math
import os
import shlex
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from unchoke import __version__
from unchoke.core import atomic, listing
from unchoke.core.addresses import data_named_by
from unchoke.core.brief_waits import wait_briefly
from unchoke.core.choices import Choice
from unchoke.core.clock import LoopProfiler, StageTimers
from unchoke.core.errors import UsageError, list_some
from unchoke.core.events import Chosen, Note, OnEvent, StageDone, StageStarted
from unchoke.core.in_memory import write_data
from unchoke.core.prefetch import Prefetch
from unchoke.core.remembered import remember, resolve_settings
from unchoke.core.remote import RemotePlace, locate
from unchoke.core.settings import Settings
from unchoke.core.timeline import Timeline
from unchoke.core.tuned import TuningVerdicts, load_verdicts, model_name
from unchoke.core.urls import url_behind
from unchoke.core.workspace import DEFAULT_ROOT, Workspace, out_option
from unchoke.jobs.cluster.connection import Cluster, cluster_at, leave_cluster
from unchoke.machine.memory.memory_watch import MemoryWatch
from unchoke.machine.policy import refuse_absent_device
from unchoke.machine.system_errors import refuse_no_addresses
from unchoke.runs.progress_log import ProgressLog
from unchoke.runs.tracker import refuse_unknown_trackers
from unchoke.runs.tracking import Tracking

if TYPE_CHECKING:
    from unchoke.machine.machine_facts import MachineFacts
    from unchoke.machine.policy import Policy
    from unchoke.runs.stretches import StretchLog


class LaunchGroup(Protocol):
    """The `world` processes that a launcher started around one command, `neighbours` of them on this machine."""

    @property
    def world(self) -> int: ...
    @property
    def neighbours(self) -> int: ...


@dataclass
class Session:
    """One command at work in one workspace. `choices` collects every choice made, in order, for the record."""

    workspace: Workspace
    settings: Settings
    on_event: OnEvent
    memory: MemoryWatch
    remembering: bool = True
    encoder_from: Literal["default", "remembered", "typed"] = "typed"
    """Who said which encoder: by default it may be chosen, by what is at hand and how many photos there are."""
    ends_s: float = math.inf
    """When the training of a network ends, after the epoch that it is in, by the clock of `began_s`."""
    heeds_tuned: bool = True
    """Whether what `unchoke tune` found is used."""
    began_s: float = field(default_factory=time.monotonic)
    timers: StageTimers = field(default_factory=StageTimers)
    choices: list[Choice] = field(default_factory=list)
    timelines: dict[str, Timeline] = field(default_factory=dict)
    """What the stages of `timers` were made of, for those that have clocks inside."""
    part: LaunchGroup | None = None
    """This process's part among several that a launcher started; None when it was started alone."""
    trains_here: bool = False
    """Whether networks train in this process, whatever --on says: where the time they may take was measured here."""
    profiler: LoopProfiler | None = None
    """What records the training that runs now, where that is wanted."""
    prefetch: Prefetch[Any] | None = None
    """Libraries and the encoder, where they are being loaded meanwhile."""
    stretches: StretchLog | None = None
    """What earlier stretches of the training that runs now took."""
    tracking: Tracking | None = None
    """Where `--log` sends the runs of this command."""
    _warned: set[str] = field(default_factory=set, repr=False)

    @cached_property
    def machine(self) -> MachineFacts:
        """The facts of this machine, looked at on first use because that loads torch."""
        from unchoke.machine.detect import detect_machine

        return detect_machine(self.workspace.root)

    @cached_property
    def policy(self) -> Policy:
        """What suits this machine, with the user's overrides."""
        from unchoke.machine.policy import choose_policy

        settings = self.settings
        return choose_policy(self.machine, device=settings.device, workers=settings.workers)

    @property
    def cluster(self) -> Cluster | None:
        """The cluster that --on names, reached when it is first asked for; None where everything runs here."""
        return cluster_at(self.settings.on)

    @property
    def trains_on_nodes(self) -> bool:
        """Whether networks train on nodes of a cluster. One that is profiled, or that a launcher runs, trains where it is."""
        launched = self.part is not None and self.part.world > 1
        return self.cluster is not None and not (launched or self.trains_here or self.profiler)

    @property
    def num_started(self) -> int:
        """Processes that train together on this machine, started by this one."""
        return 1 if self.trains_on_nodes else self.settings.devices or 1

    @cached_property
    def tuned(self) -> TuningVerdicts:
        """What `unchoke tune` keeps for this model here; nothing, with a note, where it was found under other circumstances."""
        found = load_verdicts(self.workspace, self.settings) if self.heeds_tuned else None
        if found is None:
            return TuningVerdicts(model_name(self.settings))
        if changed := found.outdated(self.found_on, self.settings.data):
            self.warn(f"what was tuned on {found.date} is not used: {changed}. `unchoke tune` tries it again")
            return TuningVerdicts(found.model)
        return found

    @property
    def found_on(self) -> dict[str, str]:
        """What figures measured now hold for: the device, its driver, and versions."""
        from unchoke.machine.policy import describe_device

        facts = self.machine
        versions = {"torch": facts.torch_version, "openvino": facts.openvino_version, "unchoke": __version__}
        return {**describe_device(facts, self.policy.device), **versions}

    @contextmanager
    def stage(self, name: str, detail: str = "") -> Iterator[None]:
        """Time a stage and tell of it."""
        before = self.timers.seconds.get(name, 0.0)
        self.on_event(StageStarted(name, detail))
        with self.timers.stage(name):
            yield
        self.on_event(StageDone(name, self.timers.seconds[name] - before))

    def chose(self, choice: Choice) -> None:
        """Keep a choice for the record and show it."""
        self.choices.append(choice)
        self.on_event(Chosen(choice))

    def use_encoder(self, name: str, input_px: int | None) -> None:
        """Go on with an encoder that was chosen."""
        self.settings = replace(self.settings, encoder=name, input_px=input_px)
        self.encoder_from = "remembered"

    def warn(self, text: str) -> None:
        """Say it, once."""
        if text not in self._warned:
            self._warned.add(text)
            self.on_event(Note(text, "warning"))

    def remember_settings(self) -> None:
        """Keep the settings for next time, once DATA proved to be there; a rehearsal keeps nothing."""
        if self.remembering:
            remember(self.workspace, self.settings)


@contextmanager
def open_session(
    typed: dict[str, Any],
    *,
    out: Path | str | None,
    on_event: OnEvent | None,
    remembering: bool = True,
    telling: bool | None = None,
    part: LaunchGroup | None = None,
) -> Iterator[Session]:
    """Own the workspace and settle the settings; unless `telling` says otherwise, what remembers tells others how far it is."""
    refuse_no_addresses()
    refuse_absent_device(typed.get("device"))
    wait_briefly()
    workspace = Workspace(Path(out) if out is not None else DEFAULT_ROOT)
    if typed.get("data") is not None and not isinstance(typed["data"], str | os.PathLike | RemotePlace):
        table, implied = write_data(typed["data"], workspace.data)
        if typed.get("label"):
            implied.pop("target", None)
        typed = {**typed, "data": table, **{name: value for name, value in implied.items() if typed.get(name) is None}}
    settings, reasons = resolve_settings(workspace, typed)
    refuse_unknown_trackers(settings.log)
    log, settings = settings.log, replace(settings, log=())  # what a run is does not depend on who hears of it
    refuse_inside_data(workspace, settings)
    if not typed.get("data") and isinstance(data := locate(settings.data), Path) and not data.exists():
        raise UsageError(
            f"no such file or folder: {settings.data}",
            code="no-such-file",
            why=f"{workspace.settings_file} remembers it: it was typed in another folder, or it was moved since",
            try_=f"name it once more: unchoke fit PHOTOS{out_option(workspace.root)}",
        )
    refuse_missing_weights(typed.get("weights"))
    listener = on_event or default_listener()
    named = nullcontext() if typed.get("data") else data_named_by(workspace.settings_file, out=out_option(workspace.root))
    with named, workspace.own(), MemoryWatch() as memory:
        for place in (workspace.root, workspace.engines):
            atomic.sweep_temporaries(place)
        session = Session(workspace, settings, listener, memory, remembering, part=part)
        about_encoder = ("encoder", "weights", "input_px")
        if all(typed.get(name) is None for name in about_encoder):
            session.encoder_from = "remembered" if any(name in reasons for name in about_encoder) else "default"
        for name, reason in reasons.items():
            session.chose(Choice(name, settings.shown(name), reason))
        with reached_cluster(session), ExitStack() as open_log:
            if remembering if telling is None else telling:  # for those who look on from another process
                told = open_log.enter_context(closing(ProgressLog(workspace)))
                session.on_event = told.listening(session.on_event)
            if log and remembering:
                session.tracking = Tracking(log, workspace, session.on_event)
                session.on_event = session.tracking.listening(session.on_event)
            yield session


@contextmanager
def reached_cluster(session: Session) -> Iterator[None]:
    """The cluster of --on for the length of the block; one that cannot be reached is an error before anything is done."""
    try:
        if (cluster := session.cluster) is not None:
            answer = cluster.in_words()
            session.chose(Choice("on", session.settings.on, answer))
        yield
    finally:
        leave_cluster()


def tell_if_done(session: Session, run: str) -> None:
    """A profile was asked for of a run that is done already."""
    if session.settings.profile:
        session.warn(
            f"{run} was done already: nothing was trained, so nothing was profiled; `unchoke profile train` always trains"
        )


def default_listener() -> OnEvent:
    """For callers from Python who gave none: the same lines the command shows."""
    from unchoke.runs.report.console import Console

    return Console().on_event


def refuse_missing_weights(typed: Path | str | None) -> None:
    """A wrong path is an error before files are read and libraries loaded."""
    if typed and not Path(typed).exists():
        raise UsageError(
            f"no weights file at {typed}",
            code="no-such-weights",
            why="--weights names a file on this machine",
            try_="check the path",
        )


def refuse_inside_data(workspace: Workspace, settings: Settings) -> None:
    """DATA is only ever read: a workspace among the pictures would be scanned as one of them. Nor can one lie behind a URL."""
    if url := url_behind(workspace.root):
        raise UsageError(
            f"the workspace {url} would not be on this machine",
            code="workspace-is-remote",
            why="only data is read by URL: a workspace is locked, memory-mapped and renamed into place",
            try_="--out unchoke-out, or leave --out out",
        )
    if not settings.data:
        why, try_, file = (
            "this workspace has not seen any yet",
            "unchoke fit PHOTOS, a folder or a table",
            workspace.settings_file,
        )
        if runs := listing.names(workspace.experiments, prefix="exp_"):
            why = f"{file.name}, which remembers it for {list_some(runs)}, {'names none' if file.exists() else 'is gone'}"
            try_ = f"name it once more: unchoke fit PHOTOS{out_option(workspace.root)}"
        raise UsageError("no DATA was given", code="no-data-given", why=why, try_=try_)
    data = locate(settings.data)
    folders = [locate(folder) for folder in settings.images] or [data]
    root = workspace.root.resolve()
    for folder in folders:
        if isinstance(folder, Path) and folder.is_dir() and root.is_relative_to(folder.resolve()):
            raise UsageError(
                f"the workspace {workspace.root} would lie inside {folder}",
                code="workspace-inside-data",
                why="nothing is ever written among your pictures",
                try_=f"run from another folder, or add --out {shlex.quote(str(folder.resolve().parent / 'unchoke-out'))}",
            )
