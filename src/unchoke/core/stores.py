"""Requests to stores behind URLs: the one place that knows of fsspec.

In: the URL of a file. Out: its content, its size and a stamp, or why there are none. File systems are made when first needed, one
for each process and store, and shared by its threads: a forked child makes its own. A request that fails in a way that may pass
is tried again a few times, and before the last try the store itself is asked whether it is there. What is wrong with one file
is an `OSError` (`FileNotFoundError`, or `StoreError` with the reason); what would be wrong with every file is an error in three
lines, `StoreDown` where nothing answers. Credentials are what fsspec finds by itself.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shlex
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, NamedTuple, TypeVar

from unchoke.core.addresses import refuse_store
from unchoke.core.errors import MachineError, UnchokeError, UsageError, missing_extra
from unchoke.core.urls import BUCKETS, USUAL_SCHEMES, WEB_SCHEMES, hide_secrets, parent_of, root_of, split_url

READS_AT_ONCE = 16
"""How many files are fetched at the same time: a request waits for the store, not for a core."""
WAITS_S = (0.25, 1.0, 3.0)
"""Pauses between the tries of a request."""
NO_STAMP = -1
"""For a file of which a store says neither when it changed nor a tag: it may be another one every time."""
BLOCK_BYTES = 512 * 1024
_MOST_REQUESTS = 32
_RECENT_S = 20.0
_GIVE_UP_AFTER = 24
"""Failed requests in a row from which on the store is to blame and not single files."""
_TIMES = ("LastModified", "last_modified", "mtime", "updated", "modified", "Last-Modified", "created")
_TAGS = ("ETag", "etag", "md5Hash", "generation", "blob_id", "Content-MD5", "content_md5", "Digest", "checksum")
_PASSING_STATUS = {408, 425, 429, 500, 502, 503, 504}
_PASSING_ERRNO = {errno.EIO, errno.EBUSY, errno.EAGAIN, errno.ETIMEDOUT, errno.ECONNRESET, errno.ECONNREFUSED, errno.EPIPE,
                  errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, getattr(errno, "EREMOTEIO", errno.EIO)}  # fmt: skip
_NETWORK_PACKAGES = {"aiohttp", "botocore", "aiobotocore", "urllib3", "requests", "httpx", "httpx2", "httpcore", "httpcore2",
                     "google", "azure", "gcsfs", "adlfs"}  # fmt: skip
_OUR_BUGS = (AssertionError, AttributeError, NameError, TypeError)
Answer = TypeVar("Answer")


class StoreError(OSError):
    """A store did not give what was asked for, and why: no answer in several tries, no access, a refusal. It may pass."""

    def __init__(self, reason: str, url: str, cause: Literal["access", "network", "other"] = "other") -> None:
        super().__init__(errno.EIO, reason, url)
        self.reason, self.url, self.cause = reason, url, cause

    def __reduce__(self) -> tuple[object, ...]:
        return (StoreError, (self.reason, self.url, self.cause))


class StoreDown(MachineError):  # noqa: N818 (what happened, as `WorkerDied`)
    """A store answers no request: the file that was asked for is not to blame."""


def read_url(url: str, start: int | None = None, end: int | None = None) -> bytes:
    """The content of a file, or its bytes from `start` to `end`."""
    found: bytes = ask(url, lambda fs, path: fs.cat_file(path, start=start, end=end))
    return found


def info_of(url: str) -> dict[str, Any]:
    found: dict[str, Any] = ask(url, lambda fs, path: fs.info(path))
    return found


def stat_url(url: str) -> tuple[int, int]:
    """Size, and a number that changes with the content as far as the store says; see `stamp`."""
    info = info_of(url)
    if info.get("type") == "directory" and split_url(url)[0] not in WEB_SCHEMES:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), url)
    return int(info.get("size") or 0), stamp(info)


def recent_stat(url: str) -> tuple[int, int]:
    """`stat_url` as of a few seconds ago: for files that are opened over and over, and for those sought beside them."""
    known = _process.stats
    asked_s, found = known.get(url, (-_RECENT_S, None))
    now_s = time.monotonic()
    if now_s - asked_s >= _RECENT_S:
        try:
            found = stat_url(url)
        except (FileNotFoundError, IsADirectoryError):
            found = None
        known[url] = (now_s, found)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url)
    return found


def stamp(info: dict[str, Any]) -> int:
    """Stands for a local file's time: seconds of the last change, and below them a digest of that and of the store's tag.

    Stores know times to the second alone, tags tell changes within one. `NO_STAMP` where a store says neither.
    """
    times = [info[name] for name in _TIMES if info.get(name)]
    tags = [info[name] for name in _TAGS if info.get(name)]
    if not times and not tags:
        return NO_STAMP
    version = "\x1f".join(map(str, times[:1] + tags)).encode("utf-8", "surrogatepass")
    below = int.from_bytes(hashlib.blake2b(version, digest_size=8).digest(), "big") % 10**9
    when = times[0] if times else 0
    try:
        seconds = int(when.timestamp() if hasattr(when, "timestamp") else float(when))
    except (TypeError, ValueError):  # a date in words: it is in the digest
        seconds = 0
    return seconds * 10**9 + below


class RemoteFile(io.RawIOBase):
    """A file behind a URL that is read in pieces, as headers and columns need them; fsspec reads ahead."""

    def __init__(self, url: str) -> None:
        from fsspec.caching import ReadAheadCache

        super().__init__()
        self._url, self._place = url, 0
        self.size_bytes, _ = recent_stat(url)
        self._cache = ReadAheadCache(BLOCK_BYTES, self._fetch_range, self.size_bytes)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self.size_bytes}[whence]
        self._place = max(0, start + offset)
        return self._place

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        end = min(self._place + len(buffer), self.size_bytes)
        data = self._cache._fetch(self._place, end) if end > self._place else b""
        buffer[: len(data)] = data
        self._place += len(data)
        return len(data)

    def _fetch_range(self, start: int, end: int) -> bytes:
        data = read_url(self._url, start, end)
        if len(data) != end - start:
            raise StoreError("it changed while it was read, or its server does not hand out parts of files", self._url)
        return data


def ask(url: str, request: Callable[[Any, str], Answer]) -> Answer:
    """`request(file system, path)`, tried again where it fails in a way that may pass.

    `FileNotFoundError` or `StoreError` for one file; `MachineError` where a package or credentials lack, `StoreDown` where
    nothing answers.
    """
    process, fs = _process, _process.filesystem(url)
    for left, wait_s in zip(reversed(range(len(WAITS_S) + 1)), (*WAITS_S, 0.0), strict=True):
        try:
            with process.requests:
                answer = request(fs, fs._strip_protocol(url))
        except _OUR_BUGS:
            raise
        except Exception as error:
            failure = _translate(url, error)
            if not left or not failure.may_pass:
                if isinstance(failure.error, StoreError) and failure.error.cause != "other":
                    process.num_failed += 1
                    if process.num_failed >= _GIVE_UP_AFTER:  # files of a store that answers nothing need not be tried one by one
                        process.num_failed = 0
                        raise explain(url, failure.error) from error
                raise failure.error from error
            time.sleep(wait_s)
            if left == 1 and failure.is_silent and isinstance(failure.error, StoreError) and not process.is_answered(url, fs):
                raise explain(url, failure.error) from error
        else:
            process.num_failed = 0
            process.heard.add(root_of(url))
            return answer
    raise AssertionError("the last try returns or raises")


class _Failure(NamedTuple):
    """An error of a store in our words, whether another try may help, and whether there was no answer at all."""

    error: OSError | UnchokeError
    may_pass: bool = False
    is_silent: bool = False


def _translate(url: str, error: Exception) -> _Failure:
    """An error of a library in our words."""
    if isinstance(error, UnchokeError):
        return _Failure(error)
    if split_url(url)[0] in WEB_SCHEMES and isinstance(error, FileNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__  # fsspec reports whatever went wrong when a size was asked for as a missing file
    said = hide_secrets(str(error).strip()) or type(error).__name__
    response = getattr(error, "response", None)
    candidates = (getattr(error, "status", None), getattr(error, "code", None), getattr(response, "status_code", None))
    status = next((value for value in candidates if isinstance(value, int) and 100 <= value < 600), None)
    if isinstance(error, (FileNotFoundError, NotADirectoryError)) or status in (404, 410):
        return _Failure(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url))
    if "Credentials" in type(error).__name__:
        ways = {"s3": "aws configure, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; public buckets: FSSPEC_S3_ANON=true"}
        lacking = MachineError(
            f"there are no credentials for {root_of(url)}",
            code="no-credentials",
            why=f"the store's library looked for them in the environment and its own files: {said}",
            try_=ways.get(split_url(url)[0], "log in with the store's own tool, or set its environment variables"),
        )
        return _Failure(lacking)
    if isinstance(error, PermissionError) or status in (401, 403):
        return _Failure(StoreError(f"access was refused: {said}", url, "access"))
    if status:
        passing, said = status in _PASSING_STATUS, f"HTTP status {status}"
    elif isinstance(error, OSError) and error.errno is not None:
        passing = error.errno in _PASSING_ERRNO or error.errno < 0  # below zero: no such host, or no answer about it
    else:
        network = type(error).__module__.partition(".")[0] in _NETWORK_PACKAGES
        passing = network or isinstance(error, (TimeoutError, ConnectionError, EOFError))
    tries = f"{len(WAITS_S) + 1} tries: " if passing else ""
    return _Failure(StoreError(tries + said, url, "network" if passing else "other"), passing, passing and not status)


class S3Store(NamedTuple):
    """Where requests for a bucket go, as fsspec's library found it in the environment and its files."""

    endpoint_url: str
    region: str
    anonymous: bool


@cache
def find_s3(bucket: str) -> S3Store:
    """The store behind an s3 bucket, for GDAL, which reads it by itself."""

    def find(fs: Any, _path: str) -> S3Store:
        fs.connect()
        return S3Store(str(fs.s3.meta.endpoint_url or ""), str(fs.s3.meta.region_name or ""), bool(fs.anon))

    return ask(bucket, find)


def explain(url: str, error: OSError) -> UnchokeError:
    """An error about a place that a user named, in three lines."""
    if isinstance(error, FileNotFoundError):
        return explain_missing(url)
    reason = error.reason if isinstance(error, StoreError) else error.strerror or str(error)
    cause = error.cause if isinstance(error, StoreError) else "other"
    if cause == "access":
        give = "ask for the right to list and read it, or give other credentials (AWS_PROFILE, AWS_ACCESS_KEY_ID, HF_TOKEN)"
        return MachineError(f"{url} may not be read", code="url-forbidden", why=reason, try_=give)
    if cause == "network":
        check = "check the network and the address (AWS_ENDPOINT_URL for a store of your own), then run the same command again"
        return StoreDown(f"{root_of(url)} does not answer", code="store-down", why=reason, try_=check)
    return UsageError(f"{url} cannot be read", code="unreadable-url", why=reason, try_="check the URL")


def explain_missing(url: str, close: str = "") -> UsageError:
    """The error for a place that is not there; `close` is a name beside it that may be meant."""
    root, parent = root_of(url), parent_of(url)
    is_there = url != root
    if is_there and split_url(url)[0] in BUCKETS:
        try:
            info_of(root)
        except FileNotFoundError:
            is_there = False
        except OSError as error:
            raise explain(root, error) from error
    if split_url(url)[0] in BUCKETS and not is_there:
        return UsageError(
            f"there is no bucket {root}",
            code="no-such-bucket",
            why="the store answered, and knows none of that name",
            try_="check the spelling, and AWS_ENDPOINT_URL if it is a store of your own",
        )
    why, try_ = f"{parent} holds nothing of that name" if parent != url else "nothing is there", "check the spelling of the URL"
    if close:
        why, try_ = f"{parent} has {close!r}", f"unchoke check {shlex.quote(f'{parent}/{close}')}"
    return UsageError(f"no such file or folder: {url}", code="no-such-file", why=why, try_=try_)


class _Process:
    """The file systems of this process, how many requests are under way, and how many failed in a row."""

    def __init__(self) -> None:
        self.requests = threading.BoundedSemaphore(_MOST_REQUESTS)
        self.num_failed = 0
        self.heard: set[str] = set()
        """Buckets and hosts that have answered."""
        self.stats: dict[str, tuple[float, tuple[int, int] | None]] = {}
        self._making = threading.Lock()
        self._made: dict[tuple[str, str], Any] = {}

    def filesystem(self, url: str) -> Any:
        refuse_store(url)
        scheme = split_url(url)[0].lower()
        try:
            import fsspec
        except ImportError as error:
            raise missing_extra("fsspec", extra="remote", purpose=f"reading {scheme}://") from error
        try:
            kind: Any = fsspec.get_filesystem_class(scheme)
        except ImportError as error:
            raise _missing_package(scheme, error) from error
        except ValueError as error:
            raise UsageError(
                f"{scheme}:// is not a kind of place that is known here",
                code="unknown-scheme",
                why=f"known are {', '.join(f'{one}://' for one in USUAL_SCHEMES)} and what else fsspec knows",
                try_="check the spelling of the URL, or copy the files to a folder of this machine",
            ) from error
        own = kind._get_kwargs_from_urls(url) if scheme not in BUCKETS else {}
        key = (scheme, repr(sorted(own.items())))
        with self._making:
            if key not in self._made:
                self._made[key] = _make(scheme, kind, own)
            return self._made[key]

    def is_answered(self, url: str, fs: Any) -> bool:
        """Whether the store answers at all. A web host that never did is to blame for its own files alone."""
        if split_url(url)[0] in WEB_SCHEMES and root_of(url) not in self.heard:
            return True
        try:
            fs.info(fs._strip_protocol(parent_of(url)))
        except _OUR_BUGS:
            raise
        except Exception as error:
            return not _translate(url, error).is_silent
        return True


def _make(scheme: str, kind: Any, own: dict[str, Any]) -> Any:
    """A file system that remembers no listings and leaves tries to `ask`."""
    options: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True, **own}
    try:
        if scheme in WEB_SCHEMES:
            import aiohttp

            patience = aiohttp.ClientTimeout(total=None, connect=10, sock_connect=10, sock_read=30)
            return kind(**options, client_kwargs={"timeout": patience, "trust_env": True})
        if scheme not in ("s3", "s3a"):
            return kind(**options)
        fs = kind(**options, config_kwargs={"retries": {"total_max_attempts": 1}})
        fs.retries = 1
        return fs
    except ImportError as error:
        raise _missing_package(scheme, error) from error


def _missing_package(scheme: str, error: ImportError) -> MachineError:
    """s3 and https have an extra of ours; of the others fsspec knows the package."""
    from fsspec.registry import known_implementations

    if scheme in ("s3", "s3a", *WEB_SCHEMES):
        package = "s3fs" if scheme.startswith("s3") else "aiohttp"
        return missing_extra(package, extra="remote", purpose=f"reading {scheme}://")
    package = str(known_implementations.get(scheme, {}).get("class", scheme)).partition(".")[0]
    name = error.name or scheme if package == "fsspec" else package
    return MachineError(
        f"reading {scheme}:// needs the package {name!r}, which is not installed",
        code="missing-extra",
        why=hide_secrets(str(error)),
        try_=f"pip install {name}",
    )


_process = _Process()


def _begin_anew() -> None:
    """A fork may happen while a thread holds the locks, and loops of a parent do not run in a child."""
    global _process
    _process = _Process()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
