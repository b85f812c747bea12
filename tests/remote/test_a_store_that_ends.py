"""A store that speaks S3 ends while photos are read from it, and comes back: the photos are not to blame, and nothing is lost."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import unchoke
from children import same_imports
from conftest import TINY
from unchoke.core.events import ignore


class MortalStore:
    """A store of its own with the photos in it, which can be ended and started again at the same address."""

    def __init__(self, photos: Path) -> None:
        from tests.remote.conftest import free_address, serve

        self._serve, self._photos, self._address = serve, photos, free_address()
        self.url, self.environment = "s3://mortal/photos", {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._address[1]}"}
        self.environment |= {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "t", "AWS_DEFAULT_REGION": "us-east-1"}
        self.start()

    def start(self) -> None:
        import boto3

        self._server = self._serve(self._address)
        keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "t", "region_name": "us-east-1"}
        client = boto3.client("s3", endpoint_url=self.environment["AWS_ENDPOINT_URL"], **keys)
        client.create_bucket(Bucket="mortal")
        for file in sorted(self._photos.rglob("*.jpg")):
            key = f"photos/{file.relative_to(self._photos).as_posix()}"
            client.put_object(Bucket="mortal", Key=key, Body=file.read_bytes())

    def end(self) -> None:
        self._server.kill()
        self._server.wait()


@pytest.fixture
def store(photos: Path) -> Iterator[MortalStore]:
    pytest.importorskip("boto3")
    pytest.importorskip("moto.server")
    made = MortalStore(photos)
    try:
        yield made
    finally:
        made.end()


def shards(out: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((out / "features").rglob("*.npz"))}


def test_extract_goes_on_after_the_store_ended(store: MortalStore, photos: Path, tiny_weights: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["extract", store.url, "--out", str(out), "--encoder", TINY, "--weights", str(tiny_weights), "--engine", "torch"]
    words += ["--job-size", "2", "--workers", "1"]
    command = [sys.executable, "-m", "unchoke", *words]
    env = {**same_imports(), **store.environment}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    patience_s = time.monotonic() + 120
    while not shards(out) and child.poll() is None and time.monotonic() < patience_s:
        time.sleep(0.002)
    store.end()
    _, said = child.communicate(timeout=120)
    num_done = len(shards(out))
    assert 0 < num_done < 21, "it must be ended in the middle"
    assert child.returncode == 3, said
    assert "[store-down]" in said and "s3://mortal" in said
    assert "--max-failures" not in said and "unreachable" not in said
    assert not list(out.rglob("*.failed")) and not (out / "quarantine.csv").exists()
    store.start()
    again = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120, check=False)
    assert again.returncode == 0, again.stderr
    here = tmp_path / "here"
    unchoke.extract(photos, out=here, on_event=ignore, weights=tiny_weights, encoder=TINY, job_size=2, workers=1, engine="torch")
    assert shards(out) == shards(here) and len(shards(out)) == 21
