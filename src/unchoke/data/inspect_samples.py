"""Look into every file once, and remember what was seen.

In: samples. Out: one row of facts per sample, in their order. What `checked.parquet` already knows of a file with the same size
and time is not read again; what is learnt is saved as it comes in, so a kill costs at most a few seconds of reading.
"""

from __future__ import annotations

import io
import mmap
import time
from collections.abc import Generator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unchoke.core.ahead import map_ahead
from unchoke.core.checksums import open_checked, write_checked
from unchoke.core.clock import Loading, StageTally, during
from unchoke.core.errors import DamagedFile
from unchoke.core.events import Note, OnEvent, Progress
from unchoke.core.fingerprint import digest_bytes
from unchoke.core.input_file import size_and_time
from unchoke.core.remote import locate
from unchoke.core.stores import NO_STAMP, READS_AT_ONCE, read_url
from unchoke.core.urls import is_url
from unchoke.core.workspace import Workspace
from unchoke.data.file_findings import FATAL_PROBLEMS, FileFacts, facts_frame
from unchoke.data.sample_set import Samples, places_in
from unchoke.jobs.loader_processes import LoaderProcesses, preload_workers, start_at_once, worth_processes
from unchoke.pixels.image import (
    DecodeError,
    decode_image,
    file_refused,
    is_jpeg,
    may_pass,
    num_pages,
    open_pillow,
    orientation,
    read_bytes,
    refuse_heavy,
)

if TYPE_CHECKING:
    import pandas as pd

_SAVE_EVERY_S = 5.0
_SAVE_SHARE = 20
"""All that is known is saved each time: of millions of files not more often than one second in so many."""
_TELL_EVERY_S = 0.2
_CHUNK = 32
_BEGINNING_BYTES = 128 * 1024
FOR_FILES = ("numpy", "simplejpeg", "PIL.Image", "PIL.ImageOps", "unchoke.data.inspect_samples")
"""What processes that read files import beforehand."""
_KEY = ["path", "size_bytes", "mtime_ns"]
_SUFFIXES = {
    "JPEG": {".jpg", ".jpeg", ".jpe", ".jfif", ".jif"},
    "MPO": {".jpg", ".jpeg", ".mpo"},
    "PNG": {".png", ".apng"},
    "TIFF": {".tif", ".tiff"},
    "BMP": {".bmp", ".dib"},
    "GIF": {".gif"},
    "WEBP": {".webp"},
    "HEIF": {".heic", ".heif", ".hif"},
}
_COLOURS = {"Gray": "L", "GRAY": "L", "YCbCr": "RGB", "RGB": "RGB", "CMYK": "CMYK", "YCCK": "CMYK"}


def inspect_samples(
    samples: Samples,
    workspace: Workspace,
    *,
    threads: int,
    on_event: OnEvent,
    loading: Loading | None = None,
    decode: bool = True,
) -> pd.DataFrame:
    """Facts of every sample's file, old ones from `checked.parquet`, new ones by reading, which `loading` keeps account of.

    Without `decode` pixels are left to whoever decodes them next, who tells `settle_facts` what came of it.
    """
    import pandas as pd

    known = load_facts(workspace, on_event)
    wanted = samples.frame
    places = places_in(known["path"], wanted["path"])
    unseen = np.flatnonzero(_unread(known, wanted, places, decode=decode))
    if len(unseen) == 0:
        as_it_is = len(known) == len(places) and bool((places[1:] > places[:-1]).all())
        found = known if as_it_is else known.drop(columns=_KEY).iloc[places].reset_index(drop=True)
        return pd.DataFrame({name: (wanted if name in _KEY else found)[name] for name in known.columns}, copy=False)
    files = [ListedFile(*row) for row in wanted[_KEY].iloc[unseen].itertuples(index=False)]
    account = Loading() if loading is None else loading
    learnt = _inspect_all(files, known, workspace, threads=threads, on_event=on_event, loading=account, decode=decode)
    by_path = pd.concat([known, learnt]).drop_duplicates("path", keep="last").set_index("path")
    return by_path.loc[list(wanted["path"])].reset_index()[list(FileFacts.__dataclass_fields__)]


class ListedFile(NamedTuple):
    """A file as the scan saw it."""

    path: str
    size_bytes: int
    mtime_ns: int


def _unread(known: pd.DataFrame, wanted: pd.DataFrame, places: NDArray[np.int64], *, decode: bool) -> NDArray[np.bool_]:
    """Which files have to be looked at: those not known by that size and time, and those that could not be read before."""
    if not len(known):
        return np.ones(len(wanted), bool)
    again = known["content"].isna() | (known["content"] == "")
    if decode:
        again |= known["decoded"].eq(False) & ~known["problem"].isin(list(FATAL_PROBLEMS))
    unread = (places < 0) | again.to_numpy(dtype=bool)[places]
    unread |= wanted["mtime_ns"].to_numpy() == NO_STAMP
    for name in _KEY[1:]:
        unread |= known[name].to_numpy()[places] != wanted[name].to_numpy()
    return unread


def _inspect_all(
    files: list[ListedFile],
    known: pd.DataFrame,
    workspace: Workspace,
    *,
    threads: int,
    on_event: OnEvent,
    loading: Loading,
    decode: bool,
) -> pd.DataFrame:
    """Facts of `files`, gathered column by column: objects for tens of thousands of files would stay in memory for good."""
    in_processes = worth_processes(len(files), workers=threads) and start_at_once()
    threads = (
        max(threads, READS_AT_ONCE) if threads and not in_processes and any(is_url(file.path) for file in files) else threads
    )
    inspect = _in_processes if in_processes else _in_threads
    seen: dict[str, list[Any]] = {name: [] for name in FileFacts.__dataclass_fields__}
    started = saved = told = time.monotonic()
    failed, save_s = 0, 0.0
    for done, facts in enumerate(inspect(files, threads, loading, decode), start=1):
        for name, column in seen.items():
            column.append(getattr(facts, name))
        failed += facts.problem in FATAL_PROBLEMS
        now = time.monotonic()
        if now - told > _TELL_EVERY_S or done == len(files):
            rate = done / max(now - started, 1e-6)
            on_event(Progress("check", done, len(files), "files", rate, (len(files) - done) / rate, failed))
            told = now
        if now - saved > max(_SAVE_EVERY_S, _SAVE_SHARE * save_s):
            save_facts(workspace, known, seen)
            saved = time.monotonic()
            save_s = saved - now
    return save_facts(workspace, known, seen)


def _in_threads(files: list[ListedFile], threads: int, loading: Loading, decode: bool) -> Generator[FileFacts, None, None]:
    def inspect(file: ListedFile) -> FileFacts:
        with loading.here():
            return inspect_file(file.path, decode=decode, listed=file)

    return map_ahead(inspect, files, threads=threads, ahead=16 * max(1, threads))


def _in_processes(files: list[ListedFile], processes: int, loading: Loading, decode: bool) -> Generator[FileFacts, None, None]:
    """In whatever order they come. A file that ends its reader every time is inspected here, where that would be seen."""
    preload_workers(FOR_FILES)  # where nobody said before what else they will be needed for
    chunks = (tuple(files[start : start + _CHUNK]) for start in range(0, len(files), _CHUNK))
    with closing(LoaderProcesses(InspectProgram(decode), processes=processes, region_bytes=mmap.PAGESIZE)) as readers:
        for chunk in readers.each(chunks):
            chunk.release()
            facts, tally = chunk.value or ([inspect_file(one.path, decode=decode, listed=one) for one in chunk.task], {})
            loading.add_all(tally)
            yield from facts


@dataclass(frozen=True)
class InspectProgram:
    """`inspect_file` for some files, in a reader process."""

    decode: bool

    def __call__(self, files: tuple[ListedFile, ...], _memory: memoryview) -> tuple[list[FileFacts], StageTally]:
        loading = Loading()
        with loading.here():
            found = [inspect_file(file.path, decode=self.decode, listed=file) for file in files]
        return found, loading.tally()


def load_facts(workspace: Workspace, on_event: OnEvent) -> pd.DataFrame:
    """What is known from before; a file that cannot be read is said and then ignored: it is only a memory."""
    from pyarrow import ArrowException

    from unchoke.core.text_column import read_parquet

    empty = facts_frame([])
    if not workspace.checked_file.exists():
        return empty
    try:
        with open_checked(workspace.checked_file) as file:
            known = read_parquet(file)
    except DamagedFile as error:
        on_event(Note(f"{workspace.checked_file.name} is damaged ({error.why}); every file is looked at again", "warning"))
        return empty
    except (ArrowException, OSError, ValueError) as error:
        on_event(Note(f"{workspace.checked_file.name} cannot be read ({error}); every file is looked at again", "warning"))
        return empty
    known = known.assign(decoded=True) if "decoded" not in known.columns else known  # as all were, before that was noted
    return known if list(known.columns) == list(empty.columns) else empty


def settle_facts(workspace: Workspace, facts: pd.DataFrame, failed: Mapping[str, str], on_event: OnEvent) -> pd.DataFrame:
    """The facts once their pictures were decoded elsewhere, saved; `failed` maps paths to reasons like ``truncated: …``.

    A file that was gone or changed when it was its turn has not been decoded yet.
    """
    import pandas as pd

    problems = {path: reason.partition(": ") for path, reason in failed.items()}
    unseen = [path for path, (problem, _, _) in problems.items() if problem not in FATAL_PROBLEMS or may_pass(f"{problem}:")]
    settled = facts.assign(decoded=facts["decoded"] | ~facts["path"].isin(unseen))
    for path in problems.keys() - set(unseen):
        settled.loc[settled["path"] == path, ["problem", "detail"]] = [problems[path][0], problems[path][2]]
    both = pd.concat([load_facts(workspace, on_event), settled])
    save_facts(workspace, both, {str(name): settled[name].tolist() for name in settled})
    return settled


def save_facts(workspace: Workspace, known: pd.DataFrame, seen: dict[str, list[Any]]) -> pd.DataFrame:
    """Write all that is known, newest word on each path; return what was just seen as a frame."""
    import pandas as pd

    learnt = pd.DataFrame(seen)
    both = pd.concat([known, learnt]).drop_duplicates("path", keep="last") if len(known) else learnt
    buffer = io.BytesIO()
    both.to_parquet(buffer, index=False)
    write_checked(workspace.checked_file, buffer.getvalue())
    return learnt


def inspect_file(path: str, *, decode: bool = True, listed: ListedFile | None = None) -> FileFacts:
    """Everything `check` needs of one file, in one read. Never raises for a bad file: that is what it is here to find.

    Size and time are looked at just before; of a file behind a URL they are taken as `listed`, which saves a request.
    """
    size_bytes = mtime_ns = 0
    content, problem, detail = "", "", ""
    width = height = 0
    mode = kind = ""
    try:
        if listed is not None and is_url(path):
            size_bytes, mtime_ns = listed[1:]
        else:
            try:
                with during("stat"):
                    size_bytes, mtime_ns = size_and_time(path)
            except OSError as error:
                raise file_refused(error) from error
        refuse_heavy(size_bytes)
        data = read_bytes(path)
        with during("verify"):
            content = digest_bytes(data)
        kind, mode, width, height = _header(data)
        if decode:
            decode_image(data, cover_px=1)
        suffix = locate(path).suffix
        if kind == "TIFF" and (pages := num_pages(data)) > 1:
            problem, detail = "several-pages", str(pages)
        elif suffix.lower() not in _SUFFIXES.get(kind, {suffix.lower()}) and (suffix or not is_url(path)):
            problem, detail = "wrong-extension", f"the content is {kind}, the name ends in {suffix or 'nothing'}"
    except DecodeError as error:
        problem, detail = error.problem, error.detail
    return FileFacts(
        path=path,
        size_bytes=size_bytes,
        mtime_ns=mtime_ns,
        content=content,
        width=width,
        height=height,
        mode=mode,
        format=kind,
        problem=problem,
        detail=detail,
        decoded=decode,
    )


def read_size(path: str) -> tuple[int, int]:
    """Width and height of the upright picture, from its header; (0, 0) for a file that is no picture."""
    try:
        if is_url(path):  # from the first bytes; where it is not within them, from the whole file
            with suppress(DecodeError, OSError):
                return _header(read_url(path, 0, _BEGINNING_BYTES))[2:]
        return _header(read_bytes(path))[2:]
    except DecodeError:
        return 0, 0


def _header(data: bytes) -> tuple[str, str, int, int]:
    """Format, colour mode, and the width and height of the upright picture."""
    if is_jpeg(data):
        import simplejpeg

        try:
            height, width, colours, _ = simplejpeg.decode_jpeg_header(data)
        except ValueError:
            pass  # Pillow below says what is wrong with it
        else:
            return "JPEG", _COLOURS.get(colours, colours), *_upright(data, width, height)
    with open_pillow(data) as image:
        if is_jpeg(data):
            return "JPEG", image.mode, *_upright(data, image.width, image.height)
        return image.format or "", image.mode, image.width, image.height


def _upright(data: bytes, width: int, height: int) -> tuple[int, int]:
    """Width and height of a JPEG as it is meant to be seen."""
    return (height, width) if orientation(data) >= 5 else (width, height)
