"""A real Ray cluster of several nodes on one Linux machine: each node has its own namespaces.

Needs root. Nothing listens outside the namespaces; `stop` ends every process it started and removes every namespace it made.
"""

from __future__ import annotations

import itertools
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

NOTICES_SOON = {  # a lost node is noticed in seconds; a silent one too, on connections that are open already
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "4",
    "RAY_grpc_client_keepalive_time_ms": "2000",
    "RAY_grpc_client_keepalive_timeout_ms": "3000",
}
_made = itertools.count()
_NODE = r"""set -e
hostname "$RN_HOST"; mount --make-rprivate /
mount -t tmpfs -o size=400m tmpfs /dev/shm
mount --bind "$RN_DIR/hosts" /etc/hosts; mount --bind "$RN_DIR/resolv" /etc/resolv.conf
mkdir -p "$RN_DIR/local"; mount -t tmpfs -o size=500m tmpfs "$RN_DIR/local"
mkdir -p "$RN_DIR/local/cgroup"; for kind in "cgroup -o memory" cgroup2; do
    mount -t $kind none "$RN_DIR/local/cgroup" 2>/dev/null && break; done
for folder in $RN_HIDDEN; do mount -t tmpfs tmpfs "$folder"; done
exec "$@"
"""


def why_not() -> str:
    """Why no such cluster can be made here; "" where it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "needs root on Linux for network namespaces"
    missing = [name for name in ("ip", "unshare", "nsenter", "setpriv", "ss") if shutil.which(name) is None]
    if missing:
        return f"needs {', '.join(missing)} (iproute2, util-linux)"
    if subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"], capture_output=True).returncode:
        return "this system allows no new namespaces"
    return ""


class RayNet:
    """`nodes` machines, the first of them the head. One more namespace, without Ray, is for a driver outside the cluster.

    `hidden` are folders that only the driver sees; `cpus` is what each node claims to have.
    """

    def __init__(
        self, nodes: int = 3, *, cpus: int | Sequence[int] = 1, gpus: int = 0, net: str = "10.77.0", hidden: Iterable[Path] = ()
    ) -> None:
        self.num, self.net, self.gpus = nodes, net, gpus
        self.cpus = [cpus] * nodes if isinstance(cpus, int) else list(cpus)
        self.hidden = " ".join(map(str, hidden))
        self.tag = f"ux{os.getpid():x}x{next(_made)}"
        _sweep()
        self.dir = Path(tempfile.mkdtemp(prefix=f"rn-{os.getpid()}-", dir="/tmp"))  # short: socket paths have 108 bytes
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.lost: set[int] = set()
        """Nodes that were switched off or cut, and not started again since."""
        (self.dir / "resolv").write_text("")
        hosts = "".join(f"{self.ip(number)} node{number}\n" for number in range(nodes + 1))
        (self.dir / "hosts").write_text("127.0.0.1 localhost\n" + hosts)
        token = self.dir / "token"
        token.write_text(secrets.token_hex(32))
        token.chmod(0o600)
        proxies = ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy")
        kept = {key: value for key, value in os.environ.items() if not key.startswith("RAY_") and key.lower() not in proxies}
        self.env = {
            **kept,
            **NOTICES_SOON,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
            "PYTHONUNBUFFERED": "1",
            "GLOO_SOCKET_IFNAME": "eth0",
            "OMP_NUM_THREADS": "1",
            "HOME": str(self.dir),
            "TMPDIR": str(self.dir / "local"),  # each node's own: nothing tidies up on a machine that is switched off
        }

    @property
    def address(self) -> str:
        return f"{self.ip(0)}:6379"

    @property
    def client_address(self) -> str:
        return f"ray://{self.ip(0)}:10001"

    def ip(self, number: int) -> str:
        return f"{self.net}.{10 + number}"

    def start(self) -> RayNet:
        self._make_network()
        self._start_nodes(range(self.num))
        self.open_outside()
        return self

    def repair(self) -> None:
        """Start again whatever was lost; without its head nothing of a cluster is left."""
        lost = sorted(range(self.num) if 0 in self.lost else self.lost)
        for number in lost:
            self.mend(number)
            self.power_off(number)
        self._start_nodes(lost)

    def _start_nodes(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.start_node(number)
            if number == 0:
                self._until(lambda: ":6379 " in _sh("ip", "netns", "exec", self._namespace(0), "ss", "-ltn"), 0)
        for number in numbers:
            self._until(lambda at=number: b"Ray runtime started" in self._log(at).read_bytes(), number)  # type: ignore[misc]

    def start_node(self, number: int) -> None:
        where = ["--head", "--port=6379", "--include-dashboard=false"] if number == 0 else [f"--address={self.address}"]
        options = [
            f"--node-ip-address={self.ip(number)}",
            f"--num-cpus={self.cpus[number]}",
            f"--num-gpus={self.gpus if number else 0}",
            "--object-store-memory=100000000",
            f"--temp-dir={self.dir}/local/ray",
            "--block",
        ]
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", *where, *options]
        self.processes[number] = self._spawn(number, command, hidden=self.hidden)
        self.lost.discard(number)

    def open_outside(self) -> None:
        """A machine beside the cluster: no Ray runs there."""
        self.processes[self.num] = self._spawn(self.num, ["sleep", "infinity"], hidden="")
        self._until(lambda: bool(self._children(self.num)), self.num)

    def command(self, number: int, *command: str) -> list[str]:
        """`command` as it has to be typed to run on node `number`."""
        enter = ["nsenter", "-t", str(self._init_pid(number)), "--net", "--uts", "--mount", "--pid", f"--wdns={Path.cwd()}"]
        return [*enter, "--", *command]

    def run(self, number: int, *command: str, timeout: float = 180, **options: object) -> subprocess.CompletedProcess[str]:
        """Run `command` on node `number` and wait for it."""
        env = {**self.env, **options.pop("env", {})}  # type: ignore[dict-item]
        return subprocess.run(
            self.command(number, *command),
            env=env,
            timeout=timeout,
            capture_output=True,
            text=True,
            **options,  # type: ignore[call-overload]
        )

    def popen(self, number: int, *command: str, **options: object) -> subprocess.Popen[str]:
        """Start `command` on node `number`."""
        env = {**self.env, **options.pop("env", {})}  # type: ignore[dict-item]
        return subprocess.Popen(self.command(number, *command), env=env, text=True, **options)  # type: ignore[call-overload]

    def power_off(self, number: int) -> None:
        """Every process of the node is killed at once; the kernel still answers that nobody is there."""
        self.lost.add(number)
        self.processes[number].send_signal(signal.SIGKILL)
        self.processes[number].wait()

    def cut(self, number: int) -> None:
        """The cable is pulled: nothing answers any more, and nothing says so."""
        self.lost.add(number)
        _sh("ip", "-n", f"{self.tag}sw", "link", "set", f"v{number}", "down")

    def mend(self, number: int) -> None:
        _sh("ip", "-n", f"{self.tag}sw", "link", "set", f"v{number}", "up")

    def stop(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()
        for name in (f"{self.tag}sw", *map(self._namespace, range(self.num + 1))):
            _sh("ip", "netns", "del", name, check=False)
        shutil.rmtree(self.dir, ignore_errors=True)

    def _namespace(self, number: int) -> str:
        return f"{self.tag}n{number}"

    def _log(self, number: int) -> Path:
        return self.dir / f"n{number}.log"

    def _make_network(self) -> None:
        switch = f"{self.tag}sw"
        _sh("ip", "netns", "add", switch)
        _sh("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
        _sh("ip", "-n", switch, "link", "set", "br0", "up")
        for number in range(self.num + 1):
            name = self._namespace(number)
            _sh("ip", "netns", "add", name)
            _sh("ip", "-n", name, "link", "set", "lo", "up")
            _sh("ip", "-n", switch, "link", "add", f"v{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
            _sh("ip", "-n", switch, "link", "set", f"v{number}", "master", "br0", "up")
            _sh("ip", "-n", name, "addr", "add", f"{self.ip(number)}/24", "dev", "eth0")
            _sh("ip", "-n", name, "link", "set", "eth0", "up")

    def _spawn(self, number: int, command: list[str], *, hidden: str) -> subprocess.Popen[bytes]:
        env = {**self.env, "RN_HOST": f"node{number}", "RN_DIR": str(self.dir), "RN_HIDDEN": hidden}
        own = ["unshare", "--uts", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child=KILL"]
        entered = ["ip", "netns", "exec", self._namespace(number), *own, "bash", "-c", _NODE, "_", *command]
        with self._log(number).open("wb") as log:
            return subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *entered],  # should the test process itself be killed, the nodes go with it
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _children(self, number: int) -> list[str]:
        pid = self.processes[number].pid
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()

    def _init_pid(self, number: int) -> int:
        """The first process of the node, as seen from outside."""
        return int(self._children(number)[0])

    def _until(self, condition: object, number: int, *, limit_s: float = 120) -> None:
        end = time.monotonic() + limit_s
        while not condition():  # type: ignore[operator]
            if time.monotonic() > end or self.processes[number].poll() is not None:
                raise RuntimeError(f"node{number}: {self._log(number).read_text()[-2000:]}")
            time.sleep(0.1)


def _sh(*command: str, check: bool = True) -> str:
    return subprocess.run(command, check=check, capture_output=True, text=True).stdout


def _sweep() -> None:
    """Remove what a test process left that was killed."""
    for line in _sh("ip", "netns", "list").splitlines():
        match = re.fullmatch(r"ux([0-9a-f]+)x\d+(sw|n\d+)", line.split()[0])
        if match and not Path(f"/proc/{int(match[1], 16)}").exists():
            _sh("ip", "netns", "del", line.split()[0], check=False)
    for folder in Path("/tmp").glob("rn-*-*"):
        pid = folder.name.split("-")[1]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            with suppress(OSError):
                shutil.rmtree(folder)
