"""The frame of work on nodes: what is packed for whom, what is agreed on, and what is said of the nodes."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unchoke.jobs.cluster.connection import ClusterNode
from unchoke.jobs.cluster.file_transfer import FileSet, marked
from unchoke.jobs.cluster.hosts import NodeRefused
from unchoke.jobs.cluster.node_work import SAME_BITS, Courier, NodeReady, NodeWork, agreement, hosts_with, nodes_choice


class Copying(NodeWork):
    """Copies a file into the workspace."""

    def run(self, task: Any, folder: Path) -> str:
        (folder / "copy.txt").write_bytes(Path(task).read_bytes())
        return self.restore_names(task)


def make(tmp_path: Path) -> tuple[str, FileSet]:
    (tmp_path / "there").mkdir()
    file = tmp_path / "there" / "a.txt"
    file.write_text("all of it")
    return str(file), FileSet.of("a", [str(file)])


@pytest.mark.parametrize("sees", [True, False])
def test_task_reads_seen_or_sent_files_and_sends_home(tmp_path: Path, sees: bool) -> None:
    name, files = make(tmp_path)
    with marked(tmp_path / "home") as home:
        work, set_up = pickle.loads(pickle.dumps(((made := Copying(home=home, files=[files])), made.set_up)))
        if not sees:
            os.utime(name, ns=(1, 1))  # now it is another file than the one that was meant
            (tmp_path / "home" / home.mark).unlink()
        ready = set_up()
        assert (ready.reads, ready.writes, ready.unseen) == (sees, sees, frozenset() if sees else {"a"})
        courier = Courier([files], needs=lambda _: ["a"], into=lambda _: (tmp_path / "home", "copy.txt"))
        errand = courier.pack(name, ready)
        assert (len(errand.sent), len(courier.pack(name, ready).sent)) == (0 if sees else 1, 0), "files are sent once"
        assert courier.unpack(name, work(errand)) == name
    assert (tmp_path / "home" / "copy.txt").read_text() == "all of it"


def test_node_that_needs_too_much_sent_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, files = make(tmp_path)
    Path(name).unlink()
    monkeypatch.setattr("unchoke.jobs.cluster.file_transfer.MOST_SENT_BYTES", 5)
    with pytest.raises(NodeRefused) as caught:
        Copying(files=[files]).set_up()
    assert caught.value.code == "node-cannot-read" and "9 B" in caught.value.why and "5 B" in caught.value.why


def test_answers_are_the_same_near_or_refused() -> None:
    expected = np.array([[1.0, -4.0]], np.float32)
    assert agreement(expected, expected.copy()) == SAME_BITS
    assert agreement(expected, expected + np.float32(1e-4)).startswith("within")
    for wrong in (expected + 1, expected[:, :1], expected * np.float32("nan")):
        with pytest.raises(NodeRefused):
            agreement(expected, wrong)


def test_the_choice_of_nodes_says_which_and_why() -> None:
    ready = [NodeReady("n1", "n1-1", agreement=SAME_BITS), NodeReady("n2", "n2-1", reads=False, agreement="within 1e-07")]
    choice = nodes_choice("auto", ready, {"x": "n3 has another unchoke"}, gives="answer as this machine", files="images")
    assert choice.value == 2
    for words in ("1 node to the last bit", "n2: within 1e-07", "images are sent from here", "not used: n3 has another unchoke"):
        assert words in choice.reason


@pytest.mark.parametrize(("cpus", "gpus", "threads", "hosts"), [(8, 0, 2, 4), (3, 0, 8, 1), (8, 2, 4, 2), (0, 0, 4, 0)])
def test_hosts_have_the_threads_of_the_driver_or_a_card(cpus: int, gpus: int, threads: int, hosts: int) -> None:
    planned = hosts_with(threads)(ClusterNode("id", "n", "10.0.0.1", cpus, gpus, 0))
    assert len(planned) == hosts and all(host.slots == 2 for host in planned)
    assert sum(host.cpus for host in planned) <= cpus
