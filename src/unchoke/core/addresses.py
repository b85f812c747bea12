"""Addresses that a person typed on this machine: the only ones that a workspace can make a command talk to.

In: settings that were typed, and values that a workspace holds. Out: a refusal for an address that nobody typed here, since a
workspace may come from somebody else. What was typed is kept for each user, as digests, in `unchoke/addresses` of the folder for
state (`XDG_STATE_HOME`, on Windows `LOCALAPPDATA`); where that cannot be written, an address must be typed each time.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from unchoke.core.errors import UsageError
from unchoke.core.urls import LOCAL_SCHEMES, hide_secrets, is_url, split_url

_HERE = ("", "local", "auto")
"""Values of --on that name no address: this machine, or the cluster that the environment names."""
_IN_PROCESS = (*LOCAL_SCHEMES, "memory")
_known: set[str] = set()
"""Digests of what was typed in this process, or before it as far as was asked."""
_unsure: list[tuple[Path, str]] = []
"""The settings that say what data this process reads now, and how to name their workspace; empty where a person typed it."""


def settle_addresses(typed: Mapping[str, Any], remembered: Mapping[str, Any], *, file: Path, out: str) -> None:
    """Remember what was typed, and refuse what only `file` names."""
    _trust(one for one, _ in _addresses(typed))
    _refuse_untyped(_addresses({name: value for name, value in remembered.items() if name not in typed}), file, out)


@contextmanager
def data_named_by(file: Path, *, out: str) -> Iterator[None]:
    """Inside the block, data is read that `file` of a workspace names, and nobody typed."""
    _unsure.append((file, out))
    try:
        yield
    finally:
        _unsure.remove((file, out))


def refuse_store(url: str) -> None:
    """Before a store is asked: one that a table lists is refused if a workspace named the table, remembered if a person did."""
    if store := _store(url):
        for file, out in _unsure:
            _refuse_untyped([(store, shlex.quote(url))], file, out)
        _trust([store])


def _trust(addresses: Iterable[str]) -> None:
    if new := {_digest(one) for one in addresses if not _is_known(one)}:
        _known.update(new)
        with suppress(OSError, RuntimeError):  # no home, or one that cannot be written: it is typed again next time
            _file().parent.mkdir(parents=True, exist_ok=True)
            with _file().open("a", encoding="ascii") as file:
                file.write("".join(f"{one}\n" for one in sorted(new)))


def refuse_untyped(values: Mapping[str, Any], *, file: Path, out: str) -> None:
    """Refuse values that a file of a workspace holds, where they name an address that was never typed here."""
    _refuse_untyped(_addresses(values), file, out)


def _refuse_untyped(addresses: Iterable[tuple[str, str]], file: Path, out: str) -> None:
    for address, typed in addresses:
        if not _is_known(address):
            raise UsageError(
                f"{file} names {hide_secrets(address)}, which was never typed on this machine",
                code="address-not-typed",
                why="a workspace may come from somebody else: a command connects only to what its user named",
                try_=f"if you trust it, type it once: unchoke fit {hide_secrets(typed)}{out}; or take it out of {file.name}",
            )


def _addresses(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each address among the settings, and how it is typed."""
    for name, value in values.items():
        for one in value if isinstance(value, list | tuple) else (value,):
            text = str(one)
            flag = f"--{name.replace('_', '-')} {shlex.quote(text)}"
            if name == "on":
                if text not in (*_HERE, "None"):
                    yield f"on {text}", flag
            elif name == "log":
                if text.partition(":")[2]:
                    yield f"log {text}", flag
            elif is_url(text) and (store := _store(text)):
                yield store, shlex.quote(text) if name == "data" else flag


def _store(url: str) -> str:
    """``s3://bucket``, ``https://host``: what a connection is made to; nothing for a place on this machine."""
    scheme, rest = split_url(url)
    return "" if scheme.lower() in _IN_PROCESS else f"{scheme.lower()}://{rest.partition('/')[0]}"


def _digest(address: str) -> str:
    return hashlib.sha256(address.encode("utf-8", "surrogatepass")).hexdigest()


def _is_known(address: str) -> bool:
    if _digest(address) not in _known:
        with suppress(OSError, ValueError, RuntimeError):
            _known.update(_file().read_text("ascii").split())
    return _digest(address) in _known


def _file() -> Path:
    home = os.environ.get("LOCALAPPDATA") if os.name == "nt" else os.environ.get("XDG_STATE_HOME")
    return Path(home or Path.home() / ".local" / "state") / "unchoke" / "addresses"
