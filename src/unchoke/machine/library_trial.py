"""Whether a script of the user's own can import what unchoke imports: tried, in a process that knows nothing of unchoke.

unchoke itself gets round a torchvision that was built for another torch (`core/torchvision_ready.py`); a script beside it does
not, and fails in its first line. Comes in: nothing. Goes out: a finding that says how to mend it, or none.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType

from unchoke.core.findings import Finding

_LIMIT_S = 300.0
_AROUND = "from unchoke.core.torchvision_ready import prepare_torchvision; prepare_torchvision()"


class LibraryTrial:
    """`import timm` in another process, for as long as the block runs; `finding` waits for its end."""

    def __enter__(self) -> LibraryTrial:
        command = [sys.executable, "-P", "-c", "import timm"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()

    def finding(self) -> Finding | None:
        """What is wrong with it, if anything is."""
        try:
            _, said = self._process.communicate(timeout=_LIMIT_S)
        except subprocess.TimeoutExpired:
            said = f"it took longer than {_LIMIT_S:g} s"
        else:
            if self._process.returncode == 0:
                return None
        return diagnose_import(said, torch=_version("torch"), torchvision=_version("torchvision"))


def diagnose_import(said: str, *, torch: str, torchvision: str) -> Finding:
    """What the last line of a failed `import timm` means, and what to do about it."""
    last = (said.strip().splitlines() or ["it ended without a word"])[-1]
    evidence = {"said": last, "torch": torch, "torchvision": torchvision}
    pip = f"{shlex.quote(sys.executable)} -m pip"
    if not re.search(r"operator torchvision::\w+ does not exist|undefined symbol", last):
        return Finding(
            "import-timm",
            f"`import timm` fails: {last}",
            "error",
            stage="libraries",
            evidence=evidence,
            fix="unchoke needs it, too: install it anew, and see what pip says of the versions around it",
            command=f"{pip} install --force-reinstall timm && {pip} check",
        )
    return Finding(
        "torchvision-build",
        f"`import timm` fails in scripts of your own ({last}): torchvision {torchvision} is not of the build of torch {torch}",
        stage="libraries",
        evidence=evidence,
        fix=f"install both from one place; or, in a script, before timm: {_AROUND}. unchoke does that for itself",
        command=f"{pip} install --force-reinstall torch torchvision",
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"
