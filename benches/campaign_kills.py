"""Commands killed at random moments until they have been killed N times: does each end as if nothing had happened?

For every command of `kill_cases.py` an unbroken run is the reference, and a second one shows that it has one result. Then
rounds: start the command, SIGKILL it after a random share of the reference's time, start it again, and so on, one to four times;
then let it finish and compare everything it left. A third of the rounds also send SIGTERM or SIGHUP, and a third stop and
continue (SIGSTOP, SIGCONT) the last start. A round is seeded by its command and number; each is a line of `results.jsonl`: so
the campaign goes on where it was. Folders of rounds that went wrong are kept, with what the command said.

Usage: python benches/campaign_kills.py [--num KILLS] [--seed N] [--only NAME,NAME] [--parallel N] [--work DIR] [--json]
Exits 1 when any round differed, failed, hung or left a process or a half-written file behind.
"""

from __future__ import annotations

import argparse
import atexit
import faulthandler
import importlib.util
import json
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from common import machine
from kill_cases import CASES, KillCase, make_inputs, outcome, tried_switches

MARK = "UNCHOKE_KILLS"
"""Set in the environment of every process that is started, and so of those which these start."""
_WARM = (
    *("unchoke.cli.main", "unchoke.training.fit", "unchoke.training.evaluate", "unchoke.training.predict", "timm"),
    *("unchoke.masks.segment_train", "unchoke.tuning.tune", "pyarrow.parquet", "safetensors.torch", "sqlite3", "rasterio"),
)
PATIENCE_S = 120.0
GONE_WITHIN_S = 60.0
MOST_KILLS = 4
ENDINGS = {0, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP, 128 + signal.SIGTERM, 128 + signal.SIGHUP, 130}
"""How a disturbed command may end."""


class StoppedError(Exception):
    """The campaign itself was interrupted."""


@dataclass
class Round:
    """One command disturbed several times and then finished."""

    case: str
    number: int
    kills: int = 0
    others: list[str] = field(default_factory=list)
    moments: list[float] = field(default_factory=list)
    """Shares of the reference's time at which it was disturbed."""
    differences: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    stuck: bool = False
    leftovers: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def sound(self) -> bool:
        return not (self.differences or self.failures or self.stuck or self.leftovers)


@dataclass(frozen=True)
class Reference:
    """What an unbroken run left, and how long it took."""

    seconds: float
    outcome: dict[str, str]


class Campaign:
    """A folder with inputs, references and the results so far."""

    def __init__(self, work: Path, *, seed: int, parallel: int) -> None:
        self.work, self.seed = work.resolve(), seed
        self.stop = threading.Event()
        self.results = self.work / "results.jsonl"
        self.slots: queue.Queue[list[int]] = queue.Queue()
        for cores in share_cores(parallel):
            self.slots.put(cores)
        make_inputs(self.work / "inputs")

    def earlier(self) -> list[Round]:
        """Rounds of an earlier start with the same seed."""
        lines = self.results.read_text(encoding="utf-8").splitlines() if self.results.exists() else []
        rounds = [json.loads(line) for line in lines]
        return [Round(**line["round"]) for line in rounds if line["seed"] == self.seed]

    def enter(self, finished: Round) -> None:
        with self.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"seed": self.seed, "round": asdict(finished)}) + "\n")

    def folder(self, name: str) -> Path:
        """A fresh folder to run in, as deep as all the others: paths in it are relative."""
        folder = self.work / "rounds" / name
        shutil.rmtree(folder, ignore_errors=True)
        for inner in ("tmp", "said"):
            (folder / inner).mkdir(parents=True)
        return folder

    def reference(self, case: KillCase) -> Reference | str:
        """The unbroken result of a command, or why there is none; made once."""
        file = self.work / "references" / f"{case.name}.json"
        if file.exists():
            return Reference(**json.loads(file.read_text(encoding="utf-8")))
        if missing := case.missing():
            return f"{', '.join(missing)} cannot be imported"
        cores = self.slots.get()
        try:
            base = self._base(case, cores)
            first, again = (self._unbroken(case, base, f"{case.name}-unbroken-{number}", cores) for number in (1, 2))
        except RuntimeError as error:
            return str(error)
        finally:
            self.slots.put(cores)
        if changing := differing(first.outcome, again.outcome):
            return f"two unbroken runs differ in {', '.join(changing)}"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(asdict(again)), encoding="utf-8")
        return again

    def _base(self, case: KillCase, cores: list[int]) -> Path:
        """The folder that a command starts from."""
        base = self.work / "rounds" / f"{case.name}-base"
        if not (base / "said").exists() or case.before:
            base = self.folder(base.name)
            for words in case.before:
                self._finish(words, base, cores)
        return base

    def _unbroken(self, case: KillCase, base: Path, name: str, cores: list[int]) -> Reference:
        folder = self.start_from(base, name)
        began = time.monotonic()
        result = self._finish(case.words, folder, cores)
        seconds = time.monotonic() - began
        left = outcome(folder, tried=tried_switches(result) if case.tries else None)
        shutil.rmtree(folder)
        return Reference(seconds, left)

    def start_from(self, base: Path, name: str) -> Path:
        folder = self.folder(name)
        shutil.copytree(base, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("tmp", "said"))
        return folder

    def _finish(self, words: list[str], folder: Path, cores: list[int]) -> dict[str, Any]:
        attempt = Attempt(self, words, folder, cores)
        if attempt.wait(PATIENCE_S * 2) != 0:
            raise RuntimeError(f"an unbroken `unchoke {' '.join(words)}` did not end well: {attempt.last_words()}")
        return attempt.result()

    def run_round(self, case: KillCase, number: int, reference: Reference) -> Round:
        """Disturb a command as its number says, let it finish, and compare."""
        chance, told = random.Random(f"{self.seed}-{case.name}-{number}"), Round(case.name, number)
        folder = self.start_from(self.work / "rounds" / f"{case.name}-base", f"{case.name}-{number:05d}")
        signals = [signal.SIGKILL] * chance.randint(1, MOST_KILLS)
        if chance.random() < 1 / 3:
            signals.insert(chance.randrange(len(signals) + 1), chance.choice([signal.SIGTERM, signal.SIGHUP]))
        pauses = chance.random() < 1 / 3
        cores, began = self.slots.get(), time.monotonic()
        try:
            self._disturb(Disturbances(case, folder, cores, chance, signals, pauses), reference, told)
        finally:
            self.slots.put(cores)
        told.seconds = time.monotonic() - began
        if told.sound:
            shutil.rmtree(folder)
        return told

    def _disturb(self, how: Disturbances, reference: Reference, told: Round) -> None:
        limit_s, ended = PATIENCE_S + 20 * reference.seconds, None
        for number in how.signals:
            attempt, share = Attempt(self, how.case.words, how.folder, how.cores), how.chance.random()
            code = attempt.hit(number, share * reference.seconds, limit_s)
            if code is None:
                told.stuck = True
                return
            if code == 0:  # it was done before the moment came
                ended = attempt
                break
            told.moments.append(round(share, 3))
            told.kills += code == -signal.SIGKILL
            told.others += [] if number == signal.SIGKILL else [number.name]
            if code not in ENDINGS or attempt.crashed():
                told.failures.append(f"{number.name}: exit {code}, {attempt.last_words()}")
        if ended is None:
            ended = Attempt(self, how.case.words, how.folder, how.cores)
            if how.pauses and ended.wait(how.chance.random() * reference.seconds) is None:
                told.others.append("SIGSTOP")
                ended.pause(how.chance.uniform(0.1, 1.5))
            if ended.wait(limit_s) is None:
                ended.say_where()
                told.stuck = True
                return
        self._conclude(how.case, how.folder, ended, reference, told)

    def _conclude(self, case: KillCase, folder: Path, ended: Attempt, reference: Reference, told: Round) -> None:
        told.leftovers += left_processes(str(folder)) + left_files(folder)
        if ended.process.returncode != 0:
            told.failures.append(f"the last start: exit {ended.process.returncode}, {ended.last_words()}")
            return
        left = outcome(folder, tried=tried_switches(ended.result()) if case.tries else None)
        told.differences += differing(reference.outcome, left)


@dataclass(frozen=True)
class Disturbances:
    """What happens to a command in one round."""

    case: KillCase
    folder: Path
    cores: list[int]
    chance: random.Random
    signals: list[signal.Signals]
    pauses: bool


class Attempt:
    """One start of a command in its folder, on its cores; what it says goes to files there."""

    def __init__(self, campaign: Campaign, words: list[str], folder: Path, cores: list[int]) -> None:
        self.stop = campaign.stop
        said = folder / "said" / f"{len(list((folder / 'said').iterdir())) // 2 + 1:02d}"
        self.stdout, self.stderr = said.with_suffix(".out"), said.with_suffix(".err")
        script = words[words.index("--") :] if "--" in words else []
        typed = [*words[: len(words) - len(script)], "--json", *script]
        self.stdout.touch()  # a process may be killed before it opens them
        self.stderr.touch()
        self.process = Forked(typed, folder, self.stdout, self.stderr)
        if cores and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(self.process.pid, cores)

    def wait(self, seconds: float) -> int | None:
        """Its exit code, or None while it still runs."""
        until = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < until:
            if self.stop.wait(0.01):
                self.process.kill()
                self.process.wait()
                raise StoppedError
        return self.process.poll()

    def hit(self, number: signal.Signals, after_s: float, limit_s: float) -> int | None:
        """Send it a signal after some time; how it ended, by that or before, or None if it did not."""
        if self.wait(after_s) is None:
            self.process.send_signal(number)
        code = self.wait(limit_s)
        if code is None:
            self.say_where()
        return code

    def pause(self, seconds: float) -> None:
        self.process.send_signal(signal.SIGSTOP)
        self.stop.wait(seconds)
        self.process.send_signal(signal.SIGCONT)

    def say_where(self) -> None:
        """Have a command that hangs write its stacks, and end it."""
        self.process.send_signal(signal.SIGABRT)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def crashed(self) -> bool:
        return "Traceback" in self.stderr.read_text(encoding="utf-8", errors="replace")

    def last_words(self) -> str:
        return self.stderr.read_text(encoding="utf-8", errors="replace").strip()[-400:].replace("\n", " | ")

    def result(self) -> dict[str, Any]:
        last = self.stdout.read_text(encoding="utf-8").strip().splitlines()[-1:]
        told: dict[str, Any] = json.loads(last[0])["result"] if last and last[0].startswith('{"schema"') else {}
        return told


class Forked:
    """A command as the console script runs it, forked from this process, which has imported the libraries and never used them."""

    def __init__(self, words: list[str], folder: Path, out: Path, err: Path) -> None:
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            code = 70
            try:
                code = _be_the_command(words, folder, out, err)
            finally:
                os._exit(code)

    def poll(self) -> int | None:
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode

    def wait(self, seconds: float = PATIENCE_S) -> int:
        until = time.monotonic() + seconds
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired("unchoke", seconds)
            time.sleep(0.01)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _be_the_command(words: list[str], folder: Path, out: Path, err: Path) -> int:
    """The inside of the process: its exit code."""
    os.chdir(folder)
    os.environ.update(_environment(folder))
    for place, number in ((os.devnull, 0), (out, 1), (err, 2)):
        os.dup2(os.open(place, os.O_RDWR | os.O_CREAT), number)
    sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8", buffering=1, closefd=False) for number in (1, 2))  # noqa: SIM115
    faulthandler.enable(sys.stderr)
    sys.argv = ["unchoke", *words]
    from unchoke.cli.main import main

    try:
        main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        return 70
    finally:
        atexit._run_exitfuncs()
    return 0


def warm_up() -> None:
    """Import what is slow and starts no thread."""
    from unchoke.core.torchvision_ready import prepare_torchvision

    prepare_torchvision()
    for name in _WARM:
        if importlib.util.find_spec(name.partition(".")[0]):
            importlib.import_module(name)


def _environment(folder: Path) -> dict[str, str]:
    source = str(Path(__file__).resolve().parents[1] / "src")
    path, scripts = (os.environ.get(name, "") for name in ("PYTHONPATH", "PATH"))
    return {"PYTHONPATH": os.pathsep.join(filter(None, [source, path])), "TMPDIR": str(folder / "tmp"), "HF_HUB_OFFLINE": "1",
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), scripts]), MARK: str(folder)}  # fmt: skip


def left_processes(mark: str) -> list[str]:
    """Processes of a round that are still there after a while; they are ended."""
    until = time.monotonic() + GONE_WITHIN_S
    while (left := marked(mark)) and time.monotonic() < until:
        time.sleep(0.1)
    told = [f"process {' '.join(process.cmdline())[:160]}" for process in left if process.is_running()]
    for process in left:
        process.kill()
    return told


def marked(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue  # gone meanwhile, or another user's
    return found


def left_files(folder: Path) -> list[str]:
    """Half-written files beside whole ones. What a killed process had among the temporary files is not counted."""
    return [f"file {path.relative_to(folder)}" for path in folder.rglob(".unchoke-*") if "tmp" not in path.parts[-3:]]


def differing(wanted: dict[str, str], there: dict[str, str]) -> list[str]:
    """Names whose contents are not the same, the first few."""
    names = sorted(name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name))
    return [f"{name} ({'missing' if name not in there else 'more' if name not in wanted else 'other'})" for name in names[:8]]


def share_cores(parallel: int) -> list[list[int]]:
    """As many cores for every slot."""
    from unchoke.machine.detect import detect_machine

    if not hasattr(os, "sched_getaffinity"):
        return [[] for _ in range(parallel)]
    cores = sorted(os.sched_getaffinity(0))[: detect_machine().cores]
    each = max(1, len(cores) // parallel)
    return [[cores[(slot * each + number) % len(cores)] for number in range(each)] for slot in range(parallel)]


def run_rounds(
    campaign: Campaign, cases: list[KillCase], references: dict[str, Reference], *, num: int, parallel: int
) -> list[Round]:
    """Rounds over all commands in turn until there were `num` kills."""
    rounds = campaign.earlier()
    rounds = [done for done in rounds if done.case in references]
    numbers = {case.name: 0 for case in cases}
    known = {(done.case, done.number) for done in rounds}
    began, turn, waiting = time.monotonic(), 0, set[Future[Round]]()
    with ThreadPoolExecutor(parallel) as pool:
        try:
            while waiting or sum(done.kills for done in rounds) < num:
                while len(waiting) < parallel and sum(done.kills for done in rounds) + len(waiting) < num:
                    case, turn = cases[turn % len(cases)], turn + 1
                    number, numbers[case.name] = numbers[case.name], numbers[case.name] + 1
                    if (case.name, number) not in known:
                        waiting.add(pool.submit(campaign.run_round, case, number, references[case.name]))
                finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in finished:
                    rounds.append(future.result())
                    campaign.enter(rounds[-1])
                    tell(rounds[-1], sum(done.kills for done in rounds), num, began)
        except BaseException:
            campaign.stop.set()
            raise
    return rounds


def tell(last: Round, kills: int, num: int, began: float) -> None:
    how = (
        "ok"
        if last.sound
        else "NOT " + "; ".join([*last.differences, *last.failures, *last.leftovers, *(["stuck"] * last.stuck)])[:600]
    )
    print(f"{kills}/{num} kills  {time.monotonic() - began:.0f} s  {last.case} {last.number}: {how}", file=sys.stderr, flush=True)


COLUMNS = ("rounds", "kills", "other signals", "equal", "different", "failed", "stuck", "leftovers")


def table(rounds: list[Round]) -> dict[str, dict[str, int]]:
    """Counts for each command and for all."""
    names = sorted({done.case for done in rounds}, key=[case.name for case in CASES].index)
    groups = {name: [done for done in rounds if done.case == name] for name in names}
    return {name: _counts(group) for name, group in {**groups, "all": rounds}.items()}


def _counts(rounds: list[Round]) -> dict[str, int]:
    equal = sum(not (done.differences or done.failures or done.stuck) for done in rounds)
    values = (
        *(len(rounds), sum(done.kills for done in rounds), sum(len(done.others) for done in rounds), equal),
        *(sum(bool(done.differences) for done in rounds), sum(bool(done.failures) for done in rounds)),
        *(sum(done.stuck for done in rounds), sum(bool(done.leftovers) for done in rounds)),
    )
    return dict(zip(COLUMNS, values, strict=True))


def render(counts: dict[str, dict[str, int]], skipped: dict[str, str]) -> str:
    lines = [f"{'command':<16}" + "".join(f"{column:>15}" for column in COLUMNS)]
    lines += [f"{name:<16}" + "".join(f"{row[column]:>15}" for column in COLUMNS) for name, row in counts.items()]
    lines += [f"SKIPPED {name}: {why}" for name, why in skipped.items()]
    return "\n".join(lines)


def parse_words() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num", type=int, default=100, help="how many SIGKILLs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help=f"some of {','.join(case.name for case in CASES)}")
    parser.add_argument("--parallel", type=int, default=1, help="commands at a time, each on its share of the cores")
    parser.add_argument("--work", type=Path, default=Path("bench-out/kills"))
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main() -> None:
    words = parse_words()
    names = [name for name in words.only.split(",") if name]
    cases = [case for case in CASES if not names or case.name in names]
    if unknown := set(names) - {case.name for case in CASES}:
        raise SystemExit(f"no such command: {', '.join(sorted(unknown))}")
    warm_up()
    campaign = Campaign(words.work, seed=words.seed, parallel=words.parallel)
    with ThreadPoolExecutor(words.parallel) as pool:
        made = dict(zip([case.name for case in cases], pool.map(campaign.reference, cases), strict=True))
    references = {name: value for name, value in made.items() if isinstance(value, Reference)}
    skipped = {name: value for name, value in made.items() if isinstance(value, str)}
    for name, why in skipped.items():
        print(f"SKIPPED {name}: {why}", file=sys.stderr, flush=True)
    chosen = [case for case in cases if case.name in references]
    if not chosen:
        raise SystemExit("nothing is left to kill")
    rounds = run_rounds(campaign, chosen, references, num=words.num, parallel=words.parallel)
    counts = table(rounds)
    if words.json:
        wrong = [asdict(done) for done in rounds if not done.sound]
        print(json.dumps({"table": counts, "skipped": skipped, "wrong": wrong, "machine": machine(), "seed": words.seed}))
    else:
        print(render(counts, skipped))
    raise SystemExit(0 if all(done.sound for done in rounds) else 1)


if __name__ == "__main__":
    main()
