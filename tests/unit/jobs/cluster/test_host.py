"""What lives on a node, without a cluster around it."""

from __future__ import annotations

import pickle
from typing import Any

import job_bodies

from unchoke.jobs.attempts import Outcome
from unchoke.jobs.cluster.host import Host, NodeRefused, source_digest, versions


def ready(host: Host) -> Outcome[Any, Any]:
    found: Outcome[Any, Any] = pickle.loads(host.ready())
    return found


def test_a_host_sets_its_body_up_and_answers() -> None:
    host = Host(pickle.dumps((job_bodies.greeting, job_bodies.greet, ("hello",))), source_digest())
    assert ready(host).error is None
    assert pickle.loads(host.run(pickle.dumps(3))).value == "hello 3"


def test_a_set_up_that_fails_is_told_with_its_traceback() -> None:
    outcome = ready(Host(pickle.dumps((job_bodies.square, job_bodies.refuse, ())), source_digest()))
    assert "no weights here" in str(outcome.error)
    assert "in refuse" in outcome.traceback_text


def test_node_with_another_source_refuses_itself() -> None:
    outcome = ready(Host(pickle.dumps((job_bodies.square, None, ())), "0123456789abcdef"))
    assert isinstance(outcome.error, NodeRefused)
    assert "another unchoke" in outcome.error.what and source_digest() in outcome.error.why


def test_a_body_that_cannot_be_unpacked_here_is_told() -> None:
    assert isinstance(ready(Host(b"no pickle", source_digest())).error, Exception)


def test_versions_name_what_numbers_depend_on() -> None:
    found = versions()
    assert {"python", "unchoke", "torch", "numpy", "openvino"} <= found.keys()
    assert found["unchoke"] == source_digest()
