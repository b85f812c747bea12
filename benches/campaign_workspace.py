"""Every file of a finished workspace damaged in turn: is it noticed, repaired or refused, and never used in silence?

Workspaces of photos, of several models within given minutes, of tiles and of masks, and an exported run, are made once. A case is
one file and one harm: bytes flipped, cut in half, emptied, deleted, replaced by a folder, or made read-only with its folder. Each
case has a fresh copy, in which the reading commands, predictions and the commands that made it run again, in a process forked for
it. What they exit with, say and answer is compared with the same commands on a sound copy, and the case is classified by rule
(`judge()`). Each is a line of `results.jsonl`, so it goes on where it was. Copies in which something went wrong are kept.

Usage: python benches/campaign_workspace.py [--num N] [--seed N] [--only photos,minutes,export,tiles,masks] [--work DIR] [--json]
Exits 1 when any case crashed, hung or was silent.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from common import machine
from kill_cases import ENCODER, make_inputs

HARMS = ("flip", "cut", "empty", "delete", "folder", "read-only")
VERDICTS = ("harmless", "noticed", "refused", "SILENT", "CRASH", "HANG")
"""From the best to the worst: a case is what its worst command is."""
PATIENCE_S = 240.0
_TINY = ["--encoder", ENCODER, "--weights", "../../inputs/tiny.safetensors", "--device", "cpu", "--input-px", "64"]
_PHOTOS = ["../../inputs/photos", *_TINY, "--job-size", "120", "--workers", "1"]
_MASKS = ["--encoder", ENCODER, "--weights", "../../inputs/tiny.safetensors", "--device", "cpu", "--engine", "openvino"]
_PATCHES = ["--mask", "red > green", "--patch-size", "64", "--overlap", "0", "--epochs", "2", "--job-size", "64"]
_ONE = "../../inputs/photos/apple/001.jpg"
_PICTURES = [_ONE, "../../inputs/photos/birch/002.jpg", "../../inputs/photos/cloud/003.jpg"]
_VOLATILE = {"timings", "timeline", "created_at", "finished_at", "memory", "already_done", "seconds", "artefacts",
             "images_per_s", "chokes", "choices", "machine", "history", "key", "number", "wall_s", "rate_per_s", "size_bytes",
             "profile", "cost", "stages", "run", "name", "report", "records", "written", "skipped", "num_written", "num_run",
             "patches", "stretches", "reason", "evidence", "findings", "workers"}  # fmt: skip
"""What differs between two sound runs, or says how it came about rather than what came out."""
_CAP_MASK = ~(1 << 1 | 1 << 2 | 1 << 3)


@dataclass(frozen=True)
class Place:
    """A folder that is made by some commands and asked by others; `made` are also run again at the end."""

    name: str
    made: dict[str, list[str]]
    asked: dict[str, list[str]]

    def questions(self, file: str) -> dict[str, list[str]]:
        """The commands to run when `file` was harmed: of those that read such files, the ones about its own run."""
        own = next((part for part in Path(file).parts if part.startswith("exp_")), "")
        heads = next((heads for part, heads in _READERS.items() if part in file), ("",)) if self.name == "photos" else ("",)
        wanted = {**self.asked, **self.made}
        return {
            name: words
            for name, words in wanted.items()
            if name == "list" or (name.startswith(heads) and (not own or "exp_" not in name or own in name))
        }


_READERS: dict[str, tuple[str, ...]] = {
    "report.html": ("report", "fit", "train"),
    "history.json": ("show", "fit", "train"),
    "predictions.csv": ("evaluate", "fit", "train"),
    "record.json": ("best", "show", "report", "evaluate", "predict", "fit", "train"),
    "best_head.pt": ("evaluate", "predict", "fit", "train"),
    "checkpoints/": ("evaluate", "fit", "train"),
    "loop.json": ("show", "fit", "train"),
    "memory.json": ("show", "fit", "train"),
    "exp_": ("show", "evaluate", "predict", "fit", "train"),
    "experiments.db": ("best", "compare", "show", "report", "evaluate exp_1", "fit", "train exp_2"),
    "experiments/": ("best", "fit", "train exp_2"),
    "engines/": ("predict exp_1", "predict exp_2", "fit", "train exp_2"),
    "features/": ("evaluate exp_1", "evaluate exp_2", "fit", "train exp_2"),
    "pixels/": ("evaluate exp_3", "train exp_3"),
    "w/": ("best", "evaluate exp_3", "fit", "train exp_3"),
}
"""Which commands read which files of photos, by the first part of a name that fits; those that made a run come last."""

_W = ["--out", "w"]
PLACES = {
    "photos": Place(
        "photos",
        made={
            "fit exp_1": ["fit", *_PHOTOS, "--engine", "openvino", "--cut", "end", "--head", "linear", "--epochs", "4", *_W],
            "train exp_2": ["train", *_PHOTOS, "--engine", "openvino", "--cut", "-1", "--epochs", "1", *_W],
            "train exp_3": ["train", *_PHOTOS, "--cut", "none", "--epochs", "1", *_W],
        },
        asked={
            "list": ["runs", "list", *_W],
            "best": ["runs", "best", *_W],
            **{f"show {run}": ["runs", "show", run, *_W] for run in ("exp_1", "exp_2", "exp_3")},
            "compare": ["runs", "compare", "exp_1", "exp_2", *_W],
            **{f"report {run}": ["report", run, *_W] for run in ("exp_1", "exp_2")},
            **{f"evaluate {run}": ["evaluate", run, *_W] for run in ("exp_1", "exp_2", "exp_3")},
            **{f"predict {run}": ["predict", run, *_PICTURES, *_W] for run in ("exp_1", "exp_2", "exp_3")},
        },
    ),
    "minutes": Place(
        "minutes",
        made={"fit exp_1": ["fit", *_PHOTOS, "--engine", "openvino", "--cut", "-1", "--epochs", "1", "--minutes", "1", *_W]},
        asked={
            "list": ["runs", "list", *_W],
            **{name: [*name.split(), *_W] for name in ("runs show exp_1", "report exp_1", "evaluate exp_1")},
            "predict exp_1": ["predict", "exp_1", *_PICTURES, *_W],
        },
    ),
    "tiles": Place(
        "tiles",
        made={"tile": ["tile", "../../inputs/scenes", "--tile-size", "128", "--mask", "red > green", "--workers", "1", *_W]},
        asked={},
    ),
    "masks": Place(
        "masks",
        made={
            "segment train exp_1": ["segment", "train", "../../inputs/scenes", *_MASKS, *_PATCHES, *_W],
            "segment predict": ["segment", "predict", "exp_1", "../../inputs/scenes", "--device", "cpu", *_W],
        },
        asked={"list": ["runs", "list", *_W], "show exp_1": ["runs", "show", "exp_1", *_W]},
    ),
    "export": Place(
        "export",
        made={"runs export": ["runs", "export", "exp_1", "e", "--out", "../photos-base/w"]},
        asked={
            "show": ["runs", "show", "e"],
            "evaluate": ["evaluate", "e"],
            "predict": ["predict", "e", *_PICTURES],
            "report": ["report", "e"],
        },
    ),
}


@dataclass
class Told:
    """How one command ended: exit code, its answer without what may differ, and the words that it said beside it."""

    code: int
    answer: Any = None
    words: list[str] = field(default_factory=list)
    crash: str = ""


@dataclass
class Case:
    """One harm done to one file, and what came of it."""

    place: str
    file: str
    harm: str
    verdict: str = ""
    verdicts: dict[str, str] = field(default_factory=dict)
    detail: str = ""
    seconds: float = 0.0


class Campaign:
    """A folder with inputs, finished places, their sound answers, and the results so far."""

    def __init__(self, work: Path, *, seed: int) -> None:
        self.work, self.seed = work.resolve(), seed
        self.results = self.work / "results.jsonl"
        make_inputs(self.work / "inputs")

    def base(self, place: Place) -> Path:
        """The finished place, made once."""
        folder = self.work / "places" / f"{place.name}-base"
        if not (folder / "made").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            for name, words in place.made.items():
                told = ask(folder, {name: words})[name]
                if told.code != 0:
                    raise SystemExit(f"`unchoke {' '.join(words)}` exited {told.code}: {told.words} {told.crash}")
            (folder / "made").touch()
        return folder

    def reference(self, place: Place) -> dict[str, Told]:
        """What the commands answer on a sound copy, made once."""
        file = self.work / f"{place.name}.json"
        if not file.exists():
            copy = self.copy(place, "reference")
            told = ask(copy, place.questions(""))
            file.write_text(json.dumps({name: asdict(one) for name, one in told.items()}), encoding="utf-8")
            shutil.rmtree(copy)
        return {name: Told(**one) for name, one in json.loads(file.read_text(encoding="utf-8")).items()}

    def copy(self, place: Place, name: str) -> Path:
        folder = self.work / "places" / f"{place.name}-{name}"
        shutil.rmtree(folder, ignore_errors=True)
        return Path(shutil.copytree(self.base(place), folder))

    def cases(self, places: list[Place], num: int | None) -> list[Case]:
        """All of them in an order that the seed gives, or the first so many."""
        found = []
        for place in places:
            base = self.base(place)
            files = sorted(path.relative_to(base).as_posix() for path in base.rglob("*") if path.is_file())
            kept = [file for file in files if file != "made"]
            found += [Case(place.name, file, harm) for file in kept for harm in HARMS if not _says_nothing(base / file, harm)]
        random.Random(self.seed).shuffle(found)
        return found[:num]

    def earlier(self) -> dict[tuple[str, str, str], Case]:
        lines = self.results.read_text(encoding="utf-8").splitlines() if self.results.exists() else []
        cases = [Case(**line["case"]) for line in map(json.loads, lines) if line["seed"] == self.seed]
        return {(case.place, case.file, case.harm): case for case in cases}

    def run(self, case: Case) -> Case:
        """Do the harm to a fresh copy, ask, and judge."""
        place, began = PLACES[case.place], time.monotonic()
        reference = self.reference(place)
        copy = self.copy(place, "case")
        try:
            do_harm(copy / case.file, case.harm, random.Random(f"{self.seed}-{case.file}-{case.harm}"))
            told = ask(copy, place.questions(case.file), unprivileged=case.harm == "read-only")
        finally:
            undo_rights(copy)
        case.verdicts = {name: judge(one, reference[name], case.file) for name, one in told.items()}
        case.verdict = max(case.verdicts.values(), key=VERDICTS.index)
        if case.verdict == "harmless" and is_unmended(copy / case.file, self.base(place) / case.file, case.harm):
            case.verdict = "SILENT"
            case.verdicts = dict.fromkeys(case.verdicts, "SILENT")
        worst = [name for name, verdict in case.verdicts.items() if verdict == case.verdict]
        case.detail = f"{worst[0]}: {told[worst[0]].crash or ' | '.join(told[worst[0]].words)}"[:900]
        case.seconds = round(time.monotonic() - began, 2)
        if VERDICTS.index(case.verdict) > VERDICTS.index("refused"):
            kept = self.work / "wrong" / f"{case.place}-{case.file.replace('/', '_')}-{case.harm}"
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(copy, kept, symlinks=True)
        shutil.rmtree(copy)
        return case

    def enter(self, case: Case) -> None:
        with self.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"seed": self.seed, "case": asdict(case)}) + "\n")


def _says_nothing(file: Path, harm: str) -> bool:
    """Harms that change nothing: an empty file has no bytes to flip or to lose."""
    return file.stat().st_size == 0 and harm in ("flip", "cut", "empty")


def do_harm(file: Path, harm: str, chance: random.Random) -> None:
    """Damage one file."""
    data = file.read_bytes()
    if harm == "flip":
        start, num = chance.randrange(len(data)), min(20, max(1, len(data) // 4))
        hit = bytes(255 - value for value in data[start : start + num])
        file.write_bytes(data[:start] + hit + data[start + num :])
    elif harm == "cut":
        file.write_bytes(data[: len(data) // 2])
    elif harm == "empty":
        file.write_bytes(b"")
    elif harm == "read-only":
        file.chmod(0o444)
        file.parent.chmod(0o555)
    else:
        file.unlink()
        if harm == "folder":
            file.mkdir()


def is_unmended(file: Path, sound: Path, harm: str) -> bool:
    """Whether something people use (features, tiles, masks) was changed, and is so still after its command was run again."""
    used = file.suffix in (".npz", ".tif") and "rungs" not in file.parts and harm in ("flip", "cut", "empty", "delete")
    return used and not (file.is_file() and file.read_bytes() == sound.read_bytes())


def undo_rights(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def ask(folder: Path, questions: dict[str, list[str]], *, unprivileged: bool = False) -> dict[str, Told]:
    """Run the commands one after the other in `folder`, in a process forked from this one, and hear what they say."""
    said = folder.parent / f"{folder.name}.said"
    shutil.rmtree(said, ignore_errors=True)
    said.mkdir()
    child = os.fork()
    if child == 0:
        _answer(folder, said, questions, unprivileged)
    code = _wait(child)
    told = {}
    for number, name in enumerate(questions):
        ended = said / f"{number}.code"
        if ended.exists():
            told[name] = _hear(said, number, int(ended.read_text()))
        else:
            stderr = said / f"{number}.err"
            words = stderr.read_text(errors="replace")[-400:] if stderr.exists() else ""
            told[name] = Told(-1, crash="HANG" if code is None else f"ended by signal or exit {code}: {words}")
            break
    shutil.rmtree(said)
    return told


def _wait(child: int) -> int | None:
    """Its exit status, or None for one that had to be ended."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _answer(folder: Path, said: Path, questions: dict[str, list[str]], unprivileged: bool) -> None:
    """The inside of the forked process: never returns."""
    try:
        os.chdir(folder)
        if unprivileged:
            drop_privileges()
        for number, words in enumerate(questions.values()):
            code = _run(words, said / f"{number}.out", said / f"{number}.err")
            (said / f"{number}.code").write_text(str(code))
    finally:
        os._exit(1)


def _run(words: list[str], out: Path, err: Path) -> int:
    """What the console script does, with its streams in files."""
    from unchoke.cli.main import main

    for path, number in ((out, 1), (err, 2)):
        with path.open("wb") as file:
            os.dup2(file.fileno(), number)
    sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8", buffering=1, closefd=False) for number in (1, 2))  # noqa: SIM115
    sys.argv = ["unchoke", *words, "--json"]
    try:
        main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


def drop_privileges() -> None:
    """Heed the rights of files, as anybody but root does."""
    if os.name == "nt" or os.geteuid() != 0:
        return

    class Header(ctypes.Structure):
        _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))

    class Data(ctypes.Structure):
        _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))

    libc, header, data = ctypes.CDLL(None, use_errno=True), Header(0x20080522, 0), (Data * 2)()
    libc.capget(ctypes.byref(header), data)
    data[0].effective &= _CAP_MASK & 0xFFFFFFFF
    data[0].permitted &= _CAP_MASK & 0xFFFFFFFF
    if libc.capset(ctypes.byref(header), data) != 0:
        raise OSError(ctypes.get_errno(), "capabilities cannot be dropped")


def _hear(said: Path, number: int, code: int) -> Told:
    lines = (said / f"{number}.out").read_text(encoding="utf-8", errors="replace").splitlines()
    stderr = (said / f"{number}.err").read_text(encoding="utf-8", errors="replace")
    told = Told(code, crash=stderr[-600:] if code == 70 or "Traceback" in stderr else "")
    for line in lines:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if value.get("event") in ("note", "chosen"):
            told.words.append(str(value.get("text") or f"{value.get('name')}: {value.get('value')} ({value.get('reason')})"))
        if "error" in value:
            told.words.append(" / ".join(str(value["error"].get(part)) for part in ("what", "why", "try")))
        if "result" in value:
            told.answer = steady(value["result"])
    return told


def steady(value: Any) -> Any:
    """A result without what may differ between two sound runs."""
    if isinstance(value, dict):
        return {name: steady(one) for name, one in value.items() if name not in _VOLATILE}
    return [steady(one) for one in value] if isinstance(value, list) else value


def judge(told: Told, sound: Told, file: str) -> str:
    """By rule: a traceback or 70 is a crash; another answer without a word about it is silent; an error in words is refused."""
    if told.crash:
        return "HANG" if told.crash == "HANG" else "CRASH"
    if (told.code, told.words) == (sound.code, sound.words) and told.code != 0:
        return "harmless"
    if told.code != 0:
        return "refused" if told.code in (1, 2, 3) and told.words else "CRASH"
    new = [text for text in told.words if text not in sound.words]
    about = any(Path(file).name in text or "anew" in text or "again" in text for text in new)
    if told.answer == sound.answer:
        return "noticed" if about else "harmless"
    return "noticed" if about else "SILENT"


def table(cases: list[Case]) -> dict[str, dict[str, int]]:
    """Counts of verdicts for each harm and for all."""
    groups = {harm: [case for case in cases if case.harm == harm] for harm in HARMS}
    return {
        name: {"cases": len(group), **{verdict: Counter(case.verdict for case in group)[verdict] for verdict in VERDICTS}}
        for name, group in {**groups, "all": cases}.items()
    }


def render(counts: dict[str, dict[str, int]]) -> str:
    columns = ("cases", *VERDICTS)
    lines = [f"{'harm':<12}" + "".join(f"{column:>10}" for column in columns)]
    lines += [f"{name:<12}" + "".join(f"{row[column]:>10}" for column in columns) for name, row in counts.items()]
    return "\n".join(lines)


def warm_up() -> None:
    """Import what is slow and starts no thread, once for all forks."""
    import importlib

    from unchoke.core.torchvision_ready import prepare_torchvision

    prepare_torchvision()
    for name in ("unchoke.cli.main", "unchoke.training.fit", "unchoke.training.evaluate", "unchoke.training.predict", "timm",
                 "pyarrow.parquet", "safetensors.torch", "sqlite3"):  # fmt: skip
        importlib.import_module(name)


def parse_words() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num", type=int, default=None, help="how many cases; all where it is left out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help=f"some of {','.join(PLACES)}")
    parser.add_argument("--work", type=Path, default=Path("bench-out/workspace"))
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main() -> None:
    words = parse_words()
    names = [name for name in words.only.split(",") if name] or list(PLACES)
    if unknown := set(names) - set(PLACES):
        raise SystemExit(f"no such place: {', '.join(sorted(unknown))}")
    os.environ["HF_HUB_OFFLINE"] = "1"
    campaign = Campaign(words.work, seed=words.seed)
    warm_up()
    if "export" in names:
        campaign.base(PLACES["photos"])
    wanted, known = campaign.cases([PLACES[name] for name in names], words.num), campaign.earlier()
    done: list[Case] = []
    for number, case in enumerate(wanted, start=1):
        earlier = known.get((case.place, case.file, case.harm))
        if earlier is None:
            earlier = campaign.run(case)
            campaign.enter(earlier)
            shown = earlier.detail if VERDICTS.index(earlier.verdict) > 2 else ""
            print(f"{number}/{len(wanted)}  {earlier.seconds:.0f} s  {case.place} {case.file} {case.harm}: "
                  f"{earlier.verdict} {shown}", file=sys.stderr, flush=True)  # fmt: skip
        done.append(earlier)
    wrong = [case for case in done if case.verdict in ("SILENT", "CRASH", "HANG")]
    counts = table(done)
    if words.json:
        print(json.dumps({"table": counts, "wrong": [asdict(case) for case in wrong], "machine": machine(), "seed": words.seed}))
    else:
        print(render(counts))
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
