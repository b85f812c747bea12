"""One training on nodes of a cluster: the driver's side of what `node_member.py` does there.

In: a `TrainingJob` and a cluster. Out: where the leader's time went, and the finished training in the job's folder, which all
nodes that take part share; None where no node does. When a process or a node is lost, those that are left begin again at the
last checkpoint with a larger share of the same global batches
([why by hand](../../../../docs/decisions/0034-teams-of-our-own-train-on-clusters.md)).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from unchoke.core.choices import Choice
from unchoke.core.errors import MachineError, UnchokeError, list_some
from unchoke.core.events import Chosen, Note, OnEvent
from unchoke.core.input_file import parse_json
from unchoke.core.timeline import Timeline
from unchoke.core.units import format_count
from unchoke.jobs.attempts import Outcome, WorkerDied
from unchoke.jobs.cluster.connection import Cluster, ClusterNode
from unchoke.jobs.cluster.team import NodeSilent, Team, Teammate, TeamNeed, plan_places, recruit
from unchoke.runs.report.json import parse_event
from unchoke.training.network.distributed import meeting_place, refuse_more_than_batch, stopped
from unchoke.training.network.node_member import Listen, Meet, TrainTogether, run_errand, set_up_member
from unchoke.training.network.training_job import TrainingJob

_RESTARTS = 3
"""How often processes may die on nodes that are still there; lost nodes do not count, because they are not used again."""
_LOOK_EVERY_S = 1.0
_SETTLES_WITHIN_S = 40.0
"""After a process failed: how long the others, or word of a lost node, are waited for."""


class _FellApart(Exception):  # noqa: N818 (what happened)
    """A team lost some of its processes; another one may go on."""


@dataclass
class NodeTraining:
    """A training on nodes, from its first team to its last. `num` processes were asked for, None for as many as make sense."""

    job: TrainingJob
    cluster: Cluster
    num: int | None
    gpus: bool
    on_event: OnEvent
    stop: Callable[[], bool]
    lost: dict[str, ClusterNode] = field(default_factory=dict)
    deaths: list[str] = field(default_factory=list)

    def run(self) -> Timeline | None:
        """Train until it is finished; None where no node can take part."""
        places = plan_places(self.cluster.nodes(), self.num, gpus=self.gpus)
        num = min(len(places), self.job.loop.batch_size) if self.num is None else self.num
        if num > len(places):
            kind = "GPU" if self.gpus else "core"
            raise MachineError(
                f"--devices {num} asks for more than the cluster at {self.cluster.address} has",
                code="too-many-devices",
                why=f"there is room for {format_count(len(places), 'process', 'processes')}, one for each {kind}",
                try_="leave --devices out",
            )
        refuse_more_than_batch(num, self.job)
        with meeting_place(self.job) as place:
            need = TeamNeed(run_errand, set_up_member, (self.job, place, self.gpus))
            while True:
                usable = [place for place in places if place.node.node_id not in self.lost]
                team = recruit(self.cluster, usable, need, num=num, on_event=self.on_event, stop=self.stop)
                try:
                    if self.stop():
                        raise stopped()
                    if team.mates:
                        names = list(dict.fromkeys(str(mate.node) for mate in team.mates))
                        shared = f"{len(team.mates)} processes share" if len(team.mates) > 1 else "one process takes"
                        reason = f"{shared} every batch, on {list_some(names, limit=8)}"
                        self.on_event(Chosen(Choice("trained_on", len(team.mates), reason, {"nodes": names})))
                        return self._train(team)
                    if not self.lost and not self.deaths:
                        return None
                    # nodes that trained and are all gone may come back: that is for a person to say
                    raise MachineError(
                        "no node is left that could train",
                        code="no-usable-node",
                        why=f"lost on the way: {list_some([str(node) for node in self.lost.values()] or self.deaths)}",
                        try_="run the same command again when they are back, or with --on local: "
                        "it goes on from the last checkpoint",
                    )
                except _FellApart as reason:
                    self.on_event(Note(str(reason), "warning"))
                finally:
                    team.close()

    # -- one team ----------------------------------------------------------------------------------------------------------------

    def _train(self, team: Team) -> Timeline:
        """The leader's timeline when training is finished."""
        world, leader = len(team.mates), team.mates[0]
        asked = team.ask(leader, Meet(leader.node.address, world))
        met = next((outcome for _, outcome in team.answers([asked], timeout_s=60)), None)
        if met is None or met.value is None:
            self._refuse_lost(team)
            raise self._count(f"{leader.node} keeps no meeting place: {met.error if met else 'no answer'}")
        port = int(met.value)
        working = {
            team.ask(mate, TrainTogether(rank, world, leader.node.address, port, mate.place.cpus)): mate
            for rank, mate in enumerate(team.mates)
        }
        pending, outcomes = dict(working), dict[Teammate, Outcome[Any, Any]]()
        listening, looked_s, failed_s = team.ask(leader, Listen(self.stop())), time.monotonic(), float("inf")
        while pending or any(isinstance(one.error, NodeSilent) for one in outcomes.values()):
            for ref, outcome in team.answers([*pending, listening]):
                if ref == listening:  # over ray:// what comes back is another object for the same answer
                    self._pass_on(outcome)
                    listening = team.ask(leader, Listen(self.stop()))
                else:
                    outcomes[pending.pop(ref)] = outcome
            now = time.monotonic()
            failed_s = min(failed_s, now) if any(one.error for one in outcomes.values()) else failed_s
            if now - looked_s > _LOOK_EVERY_S or not pending:
                looked_s = now
                self._refuse_lost(team)
            if now - failed_s > _SETTLES_WITHIN_S:
                break
            time.sleep(0.1)
        for _, outcome in team.answers([listening, team.ask(leader, Listen(False))], timeout_s=5):
            self._pass_on(outcome)
        # All have ended, or will not: an error of ours is raised, another one makes this team's attempt count.
        if leader in outcomes and (timeline := outcomes[leader].value) is not None:
            return Timeline.from_dict(timeline)
        failed = {mate: outcome for mate, outcome in outcomes.items() if outcome.error is not None}
        for outcome in failed.values():
            if isinstance(outcome.error, UnchokeError):
                raise outcome.error
        dead = [f"{mate.node}: {one.error}" for mate, one in failed.items() if isinstance(one.error, WorkerDied)]
        told = [f"{mate.node}: {type(one.error).__name__}: {one.error}\n{one.traceback_text}" for mate, one in failed.items()]
        raise self._count("; ".join(dead) or "\n".join(told))

    def _pass_on(self, outcome: Outcome[Any, Any]) -> None:
        for line in outcome.value or []:
            if (event := parse_event(parse_json(line))) is not None:
                self.on_event(event)

    def _refuse_lost(self, team: Team) -> None:
        if nodes := team.lost():
            self.lost |= {node.node_id: node for node in nodes}
            names = f"{' and '.join(map(str, nodes))} {'was' if len(nodes) == 1 else 'were'}"
            raise _FellApart(f"{names} lost: training goes on from the last checkpoint with the nodes that are left")

    def _count(self, reason: str) -> _FellApart:
        self.deaths.append(reason)
        if len(self.deaths) > _RESTARTS:
            raise RuntimeError(f"training on {self.cluster.address} failed {len(self.deaths)} times; the last time: {reason}")
        first = reason.splitlines()[0]
        return _FellApart(f"a process that trained failed ({first}): all begin again at the last checkpoint")
