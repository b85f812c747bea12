"""Bad files, tables, scenes, folders, options and limits, typed as commands: is each refused or named, and does none crash?

The cases are those of `bad_inputs.py`. Each runs as the console script would, in a folder of its own, in a process forked from
this one, which has imported the libraries already and never used them. A case is judged by rule:

- ok      an error of three lines (or wrong usage, exit 2), what was bad named, or the work done, whichever is due
- crash   exit 70, a traceback, a signal, no end within the time, or more memory than any small input justifies
- silent  exit 0 without the word that was due
- wrong   refused although it is sound, another exit code than 1, 2 or 3, an error without its three lines, broken JSON

Every third case is typed with --json. Each verdict is a line of `results.jsonl`: the campaign goes on where it was, and a case
that was not ok is tried again. Cases with devices, mounts and full disks run in a mount namespace and a tmpfs of their own, which
takes root; without, they are skipped, and that is said.

Usage: python benches/campaign_inputs.py [--num N] [--seed N] [--only KIND,KIND] [--name NAME|NAME] [--work DIR] [--again]
       [--list] [--json]
Exits 1 when any case was not ok.
"""

from __future__ import annotations

import argparse
import atexit
import ctypes
import faulthandler
import importlib
import json
import os
import random
import re
import resource
import select
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from bad_inputs import CASES, KINDS, BadCase, Stage, prepare_stage
from common import machine

PATIENCE_S = 120.0
MOST_BYTES = 4_000_000_000
"""What no command may hold over inputs this small."""
VERDICTS = ("ok", "crash", "silent", "wrong")
_EXITS = {1, 2, 3, 130}
_CLONE_NEWNS, _MS_PRIVATE_REC = 0x00020000, (1 << 18) | 0x4000
_WARM = (
    *("unchoke.cli.main", "unchoke.training.fit", "unchoke.training.evaluate", "unchoke.training.predict", "unchoke.runs.lookup"),
    *("unchoke.scenes.tiling.tile", "unchoke.masks.segment_train", "unchoke.tuning.tune", "unchoke.training.budget"),
    *("unchoke.runs.report.html", "timm", "pyarrow.parquet", "safetensors.torch", "sqlite3", "rasterio"),
)


@dataclass(frozen=True)
class Verdict:
    """How one case ended."""

    kind: str
    name: str
    verdict: str
    why: str
    code: int
    seconds: float
    peak_bytes: int
    said: str = ""

    @property
    def ok(self) -> bool:
        return self.verdict == "ok"


def warm_up() -> None:
    """Import everything slow, and nothing that starts a thread."""
    from unchoke.core.torchvision_ready import prepare_torchvision

    prepare_torchvision()
    for name in _WARM:
        importlib.import_module(name)


def run_case(case: BadCase, stage: Stage, folder: Path, *, as_json: bool) -> Verdict:
    """Fork, make the bad input, type the command, wait for its end, and judge it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    started = time.monotonic()
    pipes = [os.pipe(), os.pipe()]  # no files: a limit on their size would cut off what is said of it
    child = os.fork()
    if child == 0:
        _be_the_command(case, stage, folder, as_json, [writer for _, writer in pipes])
    for _, writer in pipes:
        os.close(writer)
    status, used, said = _wait(child, [reader for reader, _ in pipes])
    seconds = time.monotonic() - started
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # whoever it left behind
    code = os.waitstatus_to_exitcode(status) if status is not None else -signal.SIGKILL
    verdict, why = judge(case, code, *said, timed_out=status is None, peak_bytes=used, as_json=as_json)
    words = "\n".join(reversed(said)).strip()[-1500:] if verdict != "ok" else ""
    shutil.rmtree(folder, ignore_errors=True)
    return Verdict(case.kind, case.name, verdict, why, code, round(seconds, 2), used, words)


def _wait(child: int, readers: list[int]) -> tuple[int | None, int, list[str]]:
    """Its status, None if it had to be ended; the most memory it held; and what it said on stdout and stderr."""
    heard: dict[int, bytes] = dict.fromkeys(readers, b"")
    until, ended, status = time.monotonic() + PATIENCE_S, 0, 0
    while not ended and time.monotonic() < until:
        ended, status, used = os.wait4(child, os.WNOHANG)
        _hear(heard, 0.0 if ended else 0.02)
    if not ended:
        os.kill(child, signal.SIGABRT)
        time.sleep(1.0)
        _hear(heard, 0.0)
        os.killpg(child, signal.SIGKILL)
        _, _, used = os.wait4(child, 0)
    for reader in readers:
        os.close(reader)
    return status if ended else None, used.ru_maxrss * 1024, [data.decode("utf-8", "replace") for data in heard.values()]


def _hear(heard: dict[int, bytes], wait_s: float) -> None:
    """Take what was said by now; only the end of it is kept."""
    ready, _, _ = select.select(list(heard), [], [], wait_s)
    while parts := {reader: part for reader in ready if (part := os.read(reader, 65_536))}:
        for reader, part in parts.items():
            heard[reader] = (heard[reader] + part)[-400_000:]
        ready, _, _ = select.select(list(heard), [], [], 0.0)
    if ready and wait_s:
        time.sleep(wait_s)  # it has closed a stream and goes on


def _be_the_command(case: BadCase, stage: Stage, folder: Path, as_json: bool, writers: list[int]) -> None:
    """The inside of the process: never returns."""
    code = 1
    try:
        os.setsid()
        for number, writer in enumerate(writers, start=1):
            os.dup2(writer, number)
            os.close(writer)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        faulthandler.enable(sys.__stderr__)
        if case.in_namespace:
            _own_mounts(folder, case.disk_bytes)
        os.chdir(folder)
        words = case.make(stage, folder)
        code = _type(case, words, as_json)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _type(case: BadCase, words: list[str], as_json: bool) -> int:
    """What the console script does with these words, under the case's limits."""
    cut = words.index("--") if "--" in words else len(words)
    sys.argv = ["unchoke", *words[:cut], *(["--json"] if as_json and case.may_be_json else []), *words[cut:]]
    if case.stdout == "closed":
        os.close(1)
    elif case.stdout:
        os.dup2(os.open(case.stdout, os.O_WRONLY), 1)
    sys.stdout = None if case.stdout == "closed" else _stream(1)  # type: ignore[assignment]
    sys.stderr = _stream(2)
    for name, limit in case.limits.items():
        which, taken = getattr(resource, name), _addresses() if name == "RLIMIT_AS" else 0
        resource.setrlimit(which, (taken + limit, resource.getrlimit(which)[1]))
    from unchoke.cli.main import main

    try:
        main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    return code


def _stream(number: int) -> TextIO:
    return os.fdopen(number, "w", encoding="utf-8", buffering=1, closefd=False)


def _addresses() -> int:
    """What this process has already: a limit on addresses says how much more there may be."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _own_mounts(folder: Path, disk_bytes: int) -> None:
    """A mount namespace in which `folder` is a small disk of its own: it vanishes with the process."""
    libc = ctypes.CDLL(None, use_errno=True)
    steps = (
        lambda: libc.unshare(_CLONE_NEWNS),
        lambda: libc.mount(b"none", b"/", None, _MS_PRIVATE_REC, None),
        lambda: libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, b"size=%d" % disk_bytes),
    )
    for step in steps:
        if step() != 0:
            raise OSError(ctypes.get_errno(), "no namespace of its own")


def judge(case: BadCase, code: int, out: str, err: str, *, timed_out: bool, peak_bytes: int, as_json: bool) -> tuple[str, str]:
    """The verdict by rule, and the reason where it is not ok."""
    both = f"{out}\n{err}"
    if timed_out:
        return "crash", f"no end within {PATIENCE_S:.0f} s"
    if code < 0 or code == 70 or "Traceback (most recent call last)" in both or "Exception ignored in" in both:
        return "crash", f"exit {code}"
    if peak_bytes > MOST_BYTES:
        return "crash", f"took {peak_bytes / 1e9:.1f} GB"
    if code not in _EXITS | {0}:
        return "wrong", f"exit {code}"
    if as_json and case.may_be_json and not case.stdout and (problem := _broken_json(out, code)):
        return "wrong", problem
    if case.due == "refused" and code == 0:
        return "silent", "accepted without a word"
    if case.due == "fine" and code != 0:
        return "wrong", f"refused with exit {code}"
    if code and not _explained(both, as_json=as_json):
        return "wrong", f"exit {code} without what, why and try"
    if case.says and not re.search(case.says, both, re.IGNORECASE):
        return "silent" if code == 0 else "wrong", f"nothing said of {case.says!r}"
    return "ok", ""


def _explained(text: str, *, as_json: bool) -> bool:
    """Three lines of an error, a usage text, a list of findings, or rows that failed."""
    if as_json:
        return '"why"' in text or '"findings"' in text or '"failed"' in text or "Usage:" in text or _three_lines(text)
    named = r"^error +[\w-]+: |^failed\t|^\S.*\bnot read: "
    return _three_lines(text) or "Usage:" in text or bool(re.search(named, text, re.MULTILINE))


def _three_lines(text: str) -> bool:
    return all(re.search(rf"^{word} ", text, re.MULTILINE) for word in ("error", "why", "try"))


def _broken_json(out: str, code: int) -> str:
    """What is wrong with what was answered for machines; "" if nothing is. Wrong usage is told before --json is known."""
    lines = out.strip().splitlines()
    if code == 2 and not lines:
        return ""
    try:
        last = json.loads(lines[-1])
        told = last.get("error", {}).get("exit_code", code)
    except (IndexError, ValueError, AttributeError):
        return "no JSON on stdout"
    return "" if told == code else f"the JSON says exit {told}, it was {code}"


def chosen_cases(only: str, names: str, num: int | None, seed: int) -> list[BadCase]:
    """Those of these kinds and names, at most `num` of them, drawn by `seed`."""
    kinds, wanted = [word for word in only.split(",") if word], [word for word in names.split("|") if word]
    if unknown := [word for word in kinds if word not in KINDS]:
        raise SystemExit(f"no such kind: {', '.join(unknown)}; there are {', '.join(KINDS)}")
    cases = [case for case in CASES if (not kinds or case.kind in kinds) and (not wanted or case.name in wanted)]
    if num is not None and num < len(cases):
        drawn = set(random.Random(seed).sample(range(len(cases)), num))
        cases = [case for place, case in enumerate(cases) if place in drawn]
    return cases


def run_campaign(cases: list[BadCase], work: Path, *, again: bool) -> tuple[list[Verdict], list[BadCase]]:
    """Every case that has no verdict yet or was not ok, and those that this user cannot run."""
    results = work / "results.jsonl"
    known = {} if again else _earlier(results)
    may_mount = os.geteuid() == 0
    skipped = [case for case in cases if case.in_namespace and not may_mount]
    stage = prepare_stage(work / "stage")
    verdicts = []
    began = time.monotonic()
    with results.open("a", encoding="utf-8") as file:
        for number, case in enumerate(case for case in cases if case not in skipped):
            verdict = known.get((case.kind, case.name))
            if verdict is None:
                verdict = run_case(case, stage, work / "cases" / f"{number:04d}", as_json=number % 3 == 2)
                file.write(json.dumps(asdict(verdict)) + "\n")
                file.flush()
                tell(verdict, number + 1, len(cases), began)
            verdicts.append(verdict)
    return verdicts, skipped


def _earlier(results: Path) -> dict[tuple[str, str], Verdict]:
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    verdicts = [Verdict(**json.loads(line)) for line in lines]
    return {(verdict.kind, verdict.name): verdict for verdict in verdicts if verdict.ok}


def tell(verdict: Verdict, number: int, num: int, began: float) -> None:
    how = verdict.verdict if verdict.ok else f"{verdict.verdict.upper()} ({verdict.why})"
    print(f"{number}/{num}  {time.monotonic() - began:.0f} s  {verdict.kind}: {verdict.name}: {how}", file=sys.stderr, flush=True)


def table(verdicts: list[Verdict]) -> dict[str, dict[str, int]]:
    """Counts for each kind and for all."""
    groups = {kind: [one for one in verdicts if one.kind == kind] for kind in KINDS}
    return {
        kind: {"cases": len(group), **{word: Counter(one.verdict for one in group)[word] for word in VERDICTS}}
        for kind, group in {**groups, "all": verdicts}.items()
        if group
    }


def render(counts: dict[str, dict[str, int]], skipped: list[BadCase]) -> str:
    columns = ("cases", *VERDICTS)
    lines = [f"{'kind':<16}" + "".join(f"{column:>9}" for column in columns)]
    lines += [f"{kind:<16}" + "".join(f"{row[column]:>9}" for column in columns) for kind, row in counts.items()]
    if skipped:
        lines.append(f"SKIPPED {len(skipped)} cases with devices, mounts and full disks: they take root")
    return "\n".join(lines)


def parse_words() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num", type=int, help="at most so many cases, drawn by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help=f"some of {','.join(KINDS)}")
    parser.add_argument("--name", default="", help="only the cases of these names, with | between them; --list shows all")
    parser.add_argument("--work", type=Path, default=Path("bench-out/inputs"))
    parser.add_argument("--again", action="store_true", help="also what was ok before")
    parser.add_argument("--list", action="store_true", help="name the cases, and run none")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main() -> None:
    words = parse_words()
    cases = chosen_cases(words.only, words.name, words.num, words.seed)
    if words.list:
        print("\n".join(f"{case.kind}: {case.name}" for case in cases))
        return
    if not cases:
        raise SystemExit(f"no case of that kind is called {words.name}")
    warm_up()
    work = words.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    verdicts, skipped = run_campaign(cases, work, again=words.again)
    counts, bad = table(verdicts), [asdict(one) for one in verdicts if not one.ok]
    if words.json:
        told: dict[str, Any] = {"table": counts, "skipped": len(skipped), "bad": bad, "machine": machine(), "seed": words.seed}
        print(json.dumps(told))
    else:
        print(render(counts, skipped))
        for one in bad:
            print(f"\n{one['verdict'].upper()}  {one['kind']}: {one['name']}: {one['why']}\n{one['said'][-600:]}")
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()
