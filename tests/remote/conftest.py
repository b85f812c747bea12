"""A store that speaks S3 on this machine, with the photos of the other suites in a bucket."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SECRET = "a-secret-that-no-file-may-hold"
BUCKET = "bucket"


@dataclass(frozen=True)
class Store:
    """A bucket, and a client to change it behind the back of a command."""

    client: Any

    def put(self, name: str, data: bytes) -> str:
        self.client.put_object(Bucket=BUCKET, Key=name, Body=data)
        return f"s3://{BUCKET}/{name}"

    def put_folder(self, name: str, folder: Path) -> str:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                self.put(f"{name}/{file.relative_to(folder).as_posix()}", file.read_bytes())
        return f"s3://{BUCKET}/{name}"

    def remove(self, name: str) -> None:
        self.client.delete_object(Bucket=BUCKET, Key=name)


@pytest.fixture(scope="session")
def store() -> Iterator[Store]:
    """Processes that tests start find it as a user's would: by the environment."""
    boto3 = pytest.importorskip("boto3")
    pytest.importorskip("moto.server")
    address = free_address()
    server = serve(address)
    environment = {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{address[0]}:{address[1]}",
    }
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    client = boto3.client("s3")
    client.create_bucket(Bucket=BUCKET)
    try:
        yield Store(client)
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        server.terminate()
        server.wait()


def free_address() -> tuple[str, int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return "127.0.0.1", free.getsockname()[1]


def serve(address: tuple[str, int]) -> subprocess.Popen[bytes]:
    """A store at that address, empty. A process of its own: GDAL waits for answers and lets no other thread run."""
    words = [sys.executable, "-m", "moto.server", "-H", address[0], "-p", str(address[1])]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _wait_for(address)
    return server


def _wait_for(address: tuple[str, int], patience_s: float = 60) -> None:
    until_s = time.monotonic() + patience_s
    while time.monotonic() < until_s:
        try:
            socket.create_connection(address, timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(f"nothing listens at {address}")
