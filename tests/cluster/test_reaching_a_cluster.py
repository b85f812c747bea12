"""What a newcomer types first: is the cluster there, am I let in, can it do the work; and what is said where not."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path

import pytest
from raynet import RayNet

pytestmark = pytest.mark.system
ROOT = Path(__file__).resolve().parents[2]


def test_doctor_and_cluster_check_tell_of_every_node_and_of_as_many_photos_as_there_are(
    net: RayNet, photos: Path, tmp_path: Path
) -> None:
    done = net.run(net.num, sys.executable, "-m", "unchoke", "doctor", "--on", net.client_address, "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    (said,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert [node["name"] for node in said["result"]["nodes"]] == ["node0", "node1", "node2"]
    for number, file in enumerate(sorted(photos.rglob("*.jpg"))[::8]):
        (tmp_path / f"class{number % 2}").mkdir(exist_ok=True)
        shutil.copy(file, tmp_path / f"class{number % 2}")
    done = net.run(0, sys.executable, "-m", "unchoke", "cluster", "check", "auto", str(tmp_path))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.count("reads the photos itself; 6 of them in") == 3
    assert done.stdout.count("the same bytes as here") == 3 and "every node gives the same answer" in done.stdout


def refusal(net: RayNet, address: str, *, node: int | None = None, **env: str) -> str:
    """What a command says that is not let in, or finds nobody; sooner than Ray would give up by itself."""
    started_s = time.monotonic()
    command = [sys.executable, "-m", "unchoke", "tile", "scenes", "--on", address]
    done = net.run(net.num if node is None else node, *command, env=env, cwd=str(net.dir))
    assert done.returncode == 3, done.stderr[-2000:]
    assert time.monotonic() - started_s < 30, "Ray itself tries for 20 to 60 seconds"
    lines = done.stderr.strip().splitlines()
    assert [line.split()[0] for line in lines] == ["error", "why", "try"], lines
    return done.stderr


def test_another_token_or_none_is_refused_at_once_wherever_the_command_is_typed(net: RayNet, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("f" * 64)
    other = {"RAY_AUTH_TOKEN_PATH": str(tmp_path / "token")}
    assert "does not let this program in" in refusal(net, net.client_address, **other)
    assert "does not let this program in" in refusal(net, "auto", node=1, **other)
    assert "does not let this program in" in refusal(net, net.address, node=1, RAY_AUTH_MODE="disabled", RAY_AUTH_TOKEN_PATH="")
    assert "/nowhere" in refusal(net, net.client_address, RAY_AUTH_TOKEN_PATH="/nowhere")


def test_a_wrong_address_or_port_is_said(net: RayNet) -> None:
    assert "nothing answers at ray://10.77.0.99:10001" in refusal(net, "ray://10.77.0.99")
    assert "nothing answers at ray://10.77.0.10:10002" in refusal(net, "ray://10.77.0.10:10002")
    assert "this machine is part of no cluster" in refusal(net, "auto")


def test_a_driver_with_another_unchoke_uses_no_node_and_says_so(net: RayNet, tmp_path: Path) -> None:
    source = Path(shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__")))
    with (source / "unchoke" / "__main__.py").open("a") as file:
        file.write("# another version\n")
    command = [sys.executable, "-m", "unchoke", "cluster", "check", net.client_address]
    done = net.run(net.num, *command, env={"PYTHONPATH": str(source)})
    assert done.returncode == 1, done.stdout[-2000:] + done.stderr[-3000:]
    assert done.stdout.count("has another unchoke and is not used") == 3
    assert "see above" in done.stdout
