"""What a newcomer types first: is the cluster there, am I let in, can it do the work; and what is said where not."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from cluster_work import answer, refusal
from raynet import RayNet

pytestmark = pytest.mark.campaign
ROOT = Path(__file__).resolve().parents[2]


def test_doctor_and_cluster_check_tell_of_every_node(net: RayNet, photos: Path, tmp_path: Path) -> None:
    done = net.run(net.num, sys.executable, "-m", "unchoke", "doctor", "--on", net.client_address, "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    (said,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert [node["name"] for node in said["result"]["nodes"]] == ["node0", "node1", "node2"]
    for number, file in enumerate(sorted(photos.rglob("*.jpg"))[::8]):
        (tmp_path / f"class{number % 2}").mkdir(exist_ok=True)
        shutil.copy(file, tmp_path / f"class{number % 2}")
    done = net.run(0, sys.executable, "-m", "unchoke", "cluster", "check", "auto", str(tmp_path), "--json")
    trials = answer(done)["trials"]
    assert [(one["reads"], one["num_photos"], one["equal"]) for one in trials] == [(True, 6, True)] * 3


def test_another_token_or_none_is_refused_at_once(net: RayNet, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("f" * 64)
    other, code = {"RAY_AUTH_TOKEN_PATH": str(tmp_path / "token")}, "cluster-refuses-login"
    refusal(net, code, on=net.client_address, **other)
    refusal(net, code, on="auto", node=1, **other)
    refusal(net, code, on=net.address, node=1, RAY_AUTH_MODE="disabled", RAY_AUTH_TOKEN_PATH="")
    refusal(net, code, "/nowhere", on=net.client_address, RAY_AUTH_TOKEN_PATH="/nowhere")


def test_a_wrong_address_or_port_is_said(net: RayNet) -> None:
    refusal(net, "cluster-silent", "ray://10.77.0.99:10001", on="ray://10.77.0.99")
    refusal(net, "cluster-silent", "ray://10.77.0.10:10002", on="ray://10.77.0.10:10002")
    refusal(net, "cluster-not-found", on="auto")


def test_a_driver_with_another_unchoke_uses_no_node(net: RayNet, tmp_path: Path) -> None:
    source = Path(shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__")))
    with (source / "unchoke" / "__main__.py").open("a") as file:
        file.write("# another version\n")
    command = [sys.executable, "-m", "unchoke", "cluster", "check", net.client_address, "--json"]
    done = net.run(net.num, *command, env={"PYTHONPATH": str(source)})
    assert done.returncode == 1, done.stdout[-2000:] + done.stderr[-3000:]
    findings = json.loads(done.stdout.splitlines()[-1])["result"]["findings"]
    assert [finding["code"] for finding in findings].count("other-unchoke") == 3
