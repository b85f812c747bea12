"""What several suites share: a few small photos, a tiny encoder, and one finished workspace that tests copy.

Everything is generated, the same on every run. `once` builds it once per run, for all test processes.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.util import Finalize
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from PIL import Image

from unchoke.core.brief_waits import wait_briefly
from unchoke.core.temporary_folders import keep_scratch

wait_briefly()  # as the commands do, and before torch is loaded: a suite that runs beside others need not crawl
TINY = "test_resnet"
CLASSES = {"apple": (200, 60, 50), "leaf": (60, 170, 70), "plum": (90, 60, 160)}


TEMPORARY = pytest.StashKey[Path]()
"""The folder for temporary files of this session; the processes of `-n` use that of the one that started them."""
SLOWEST = Path(__file__).with_name("slowest.txt")
"""The files that took longest when somebody last measured, one per line."""
CPU_S = pytest.StashKey[float]()
COSTS: dict[str, list[float]] = {}
"""Test to seconds of CPU and of the clock."""


def pytest_configure(config: pytest.Config) -> None:
    """Whatever tests, and processes they start and kill, leave among the temporary files goes with the session."""
    if hasattr(config, "workerinput"):
        return
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # `tmp_path` stays where pytest keeps the last three
    config.stash[TEMPORARY] = folder = Path(tempfile.mkdtemp(prefix="unchoke-tests-"))
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    os.environ["HF_HUB_OFFLINE"], os.environ["HF_HOME"] = "1", str(folder / "hub")  # encoders are what is installed
    os.environ["XDG_STATE_HOME"] = str(folder / "state")  # addresses that tests type are no business of the user's
    Finalize(None, shutil.rmtree, (folder, True), exitpriority=-200)  # after multiprocessing has removed what it has in there


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Nothing of ours may be left there, though processes were killed: a folder of a killed one goes within seconds."""
    if (costs := session.config.getoption("costs")) and not hasattr(session.config, "workerinput"):
        costs.write_text(json.dumps(COSTS), encoding="utf-8")
    folder = session.config.stash.get(TEMPORARY, None)
    if folder is None:
        return
    limit_s, own = time.monotonic() + 10, keep_scratch("session").parent
    while (left := sorted(set(folder.glob("unchoke-*")) - {own})) and time.monotonic() < limit_s:
        time.sleep(0.2)
    if left:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        listed = ", ".join(f"{one.name} ({', '.join(sorted(os.listdir(one))[:5])})" for one in left if one.is_dir())
        session.config.get_terminal_writer().line(f"LEFT AMONG THE TEMPORARY FILES: {listed or left}", red=True, bold=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costs", metavar="FILE", type=Path, help="write what each test cost: seconds of CPU and of the clock")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long come first (`make test-costs` notes which): no test process waits for one at the end."""
    rank = {name: number for number, name in enumerate(SLOWEST.read_text(encoding="utf-8").split())}
    items.sort(key=lambda item: rank.get(item.nodeid.partition("::")[0], len(rank)))


def pytest_collection_finish() -> None:
    """What is there now stays until the end: later collections of garbage, of which each training asks for some, pass it over."""
    gc.freeze()


def _cpu_s() -> float:
    """Of this process and of those it started that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Each report says what CPU time its phase took; it travels to the process that collects the reports."""
    report, now_s = (yield), _cpu_s()
    report.cpu_s = now_s - item.session.stash.get(CPU_S, now_s)
    item.session.stash[CPU_S] = now_s
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    cost = COSTS.setdefault(report.nodeid, [0.0, 0.0])
    cost[0] += getattr(report, "cpu_s", 0.0)
    cost[1] += report.duration


def pytest_unconfigure(config: pytest.Config) -> None:
    """The very last line. Skipped tests are easily overlooked; a page that no browser has opened is not tested."""
    reporter: pytest.TerminalReporter | None = config.pluginmanager.get_plugin("terminalreporter")
    skipped = [one for one in reporter.stats.get("skipped", []) if "no chromium" in str(one.longrepr)] if reporter else []
    if reporter and skipped:
        files = ", ".join(sorted({one.nodeid.partition("::")[0] for one in skipped}))
        told = f"BROWSER TESTS DID NOT RUN: {len(skipped)} of {files}; no chromium was found (apt-get install chromium)"
        reporter.write_line(told, red=True, bold=True)


@pytest.fixture(scope="module")
def one_torch_thread() -> Iterator[None]:
    """Tensors this small gain nothing from more threads, and test processes share the cores."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make_photo(file: Path, *, seed: int, colour: tuple[int, int, int], width: int = 96, height: int = 72) -> None:
    """A coloured blob on a textured ground: every seed gives other bytes, one colour gives one kind of picture."""
    random = np.random.default_rng(seed)
    coarse = random.integers(0, 90, (6, 8, 3), dtype=np.uint8)
    ground = np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)).astype(np.float32)
    rows, columns = np.mgrid[0:height, 0:width]
    centre = random.uniform(0.3, 0.7, 2) * (height, width)
    distance = np.hypot(rows - centre[0], columns - centre[1]) / (height * random.uniform(0.2, 0.4))
    blob = np.clip(1.5 - distance, 0, 1)[..., None]
    pixels = ground * (1 - blob) + np.array(colour) * blob
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, quality=90)


def make_photos(folder: Path, *, per_class: int = 14) -> Path:
    """Class folders of small photos."""
    for number, (name, colour) in enumerate(CLASSES.items()):
        for index in range(per_class):
            make_photo(folder / name / f"{name} {index:02d}.jpg", seed=1000 * number + index, colour=colour)
    return folder


Once = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """`once(name, build)` is a folder that `build` filled once in this run; the first test process to ask builds it.

    Such folders are shared: to be read only. A test that writes copies them.
    """
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    shared.mkdir(exist_ok=True)

    def get(name: str, build: Callable[[Path], object]) -> Path:
        folder, built = shared / name, shared / f"{name}.built"
        with FileLock(shared / f"{name}.lock"):
            if not built.exists():
                shutil.rmtree(folder, ignore_errors=True)  # of a process that failed halfway
                folder.mkdir()
                build(folder)
                built.touch()
        return folder

    return get


@pytest.fixture(scope="session")
def photos(once: Once) -> Path:
    """42 small photos in three class folders. Shared: to be read only."""
    return once("photos", make_photos)


@pytest.fixture
def own_photos(photos: Path, tmp_path: Path) -> Path:
    """The photos as a copy that a test may change."""
    return Path(shutil.copytree(photos, tmp_path / "photos"))


@pytest.fixture(scope="session")
def tiny_weights(once: Once) -> Path:
    """Weights for the encoder `TINY`: random, with batch statistics of real inputs so that its features tell pictures apart."""
    return once("weights", _save_tiny_weights) / "tiny.safetensors"


def _save_tiny_weights(folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    from unchoke.core.torchvision_ready import prepare_torchvision

    prepare_torchvision()
    import timm

    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = timm.create_model(TINY, num_classes=0).train()
        for layer in module.modules():
            if isinstance(layer, torch.nn.BatchNorm2d):
                layer.momentum = None  # a plain average over the passes below
        with torch.no_grad():
            for _ in range(4):
                small = torch.rand(8, 3, 5, 5)
                module(torch.nn.functional.interpolate(small, size=(160, 160), mode="bilinear") * 4 - 2)
    save_file({name: value.contiguous() for name, value in module.state_dict().items()}, folder / "tiny.safetensors")


@pytest.fixture(scope="session")
def finished(photos: Path, tiny_weights: Path, once: Once) -> Path:
    """A workspace in which `fit` ended. Shared: to be read only; `workspace` is a copy."""
    from unchoke.core.events import ignore
    from unchoke.training.fit import fit

    options = {"encoder": TINY, "weights": str(tiny_weights), "job_size": 16, "workers": 1}
    return once("finished", lambda folder: fit(str(photos), out=folder, on_event=ignore, **options))


@pytest.fixture
def workspace(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished workspace that a test may change."""
    return Path(shutil.copytree(finished, tmp_path / "out"))
