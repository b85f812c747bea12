"""Files and folders behind a URL: the one place that knows of fsspec.

In: a place as a user names it, or a URL from a table or a manifest. Out: a `Path` for what lies on this machine, a `RemotePlace`
for the rest, with the few things that are asked of a `Path`; and `read_url` and `stat_url` for single files. Listing is in
`listing.py`. Credentials are what fsspec finds by itself; a URL that carries some is refused, because places are written down.

File systems are made when first needed, one per process and store, and shared by its threads: a forked child makes its own. A
request that fails in a way that may pass is tried again a few times. What is wrong with one file is an `OSError`
(`FileNotFoundError`, or `StoreError` with the reason); what would be wrong with every file is an error in three lines.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shlex
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import parse_qsl

from unchoke.core.errors import MachineError, UnchokeError, UsageError, missing_extra

MOST_REQUESTS = 32
"""Requests of one process that are under way at once."""
READS_AT_ONCE = 16
"""How many files are fetched side by side: a request waits for the store, not for a core."""
WAITS_S = (0.25, 1.0, 3.0)
"""Pauses between the tries of a request."""
NO_STAMP = -1
"""For a file of which a store says neither when it changed nor a tag: it may be another one every time."""
_RECENT_S = 20.0
_GIVE_UP_AFTER = 24
"""Requests in a row without an answer, from when on it is not about single files."""
_USUAL_SCHEMES = ("s3", "gs", "az", "hf", "https", "memory", "file")
_LOCAL_SCHEMES = ("file", "local")
_WEB_SCHEMES = ("http", "https")
_BUCKETS = ("s3", "s3a", "gs", "gcs")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+)://(.*)", re.DOTALL)
_HOST_LOGIN = re.compile(r"^[^/?#]*@")
_SECRET_NAME = re.compile(r"sig|token|secret|passw|credential|key|auth|session|jwt|code", re.IGNORECASE)
_LONGEST_PLAIN_VALUE = 24
_IN_TEXT = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+://)(?:[^/\s@'\"]*@)?([^\s?'\"<>]*)(\?[^\s'\"<>]*)?")
_TIMES = ("LastModified", "last_modified", "mtime", "updated", "modified", "Last-Modified", "created")
_TAGS = ("ETag", "etag", "md5Hash", "generation", "blob_id", "Content-MD5", "content_md5", "Digest", "checksum")
_PASSING_STATUS = {408, 425, 429, 500, 502, 503, 504}
_PASSING_ERRNO = {errno.EIO, errno.EBUSY, errno.EAGAIN, errno.ETIMEDOUT, errno.ECONNRESET, errno.ECONNREFUSED, errno.EPIPE,
                  errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, getattr(errno, "EREMOTEIO", errno.EIO)}  # fmt: skip
_NETWORK_PACKAGES = {"aiohttp", "botocore", "aiobotocore", "urllib3", "requests", "httpx", "httpx2", "httpcore", "httpcore2",
                     "google", "azure", "gcsfs", "adlfs"}  # fmt: skip
_OUR_BUGS = (AssertionError, AttributeError, NameError, TypeError)

Kind = Literal["file", "folder", ""]
Answer = TypeVar("Answer")


class StoreError(OSError):
    """A store did not give what was asked for, and why: no answer in several tries, no access, a refusal. It may pass."""

    def __init__(self, reason: str, url: str, cause: Literal["access", "network", "other"] = "other") -> None:
        super().__init__(errno.EIO, reason, url)
        self.reason, self.url, self.cause = reason, url, cause

    def __reduce__(self) -> tuple[object, ...]:
        return (StoreError, (self.reason, self.url, self.cause))


@dataclass(frozen=True, order=True)
class RemotePlace:
    """A file or folder behind a URL, with what is asked of a `Path`: its names as text alone, the rest from the store."""

    url: str

    def __post_init__(self) -> None:
        scheme, rest = _split(self.url)
        object.__setattr__(self, "url", f"{scheme.lower()}://{rest.rstrip('/')}")

    def __str__(self) -> str:
        return self.url

    @property
    def scheme(self) -> str:
        return _split(self.url)[0]

    @property
    def name(self) -> str:
        """The last part, without a query."""
        return _split(self.url)[1].partition("?")[0].rpartition("/")[2]

    @property
    def stem(self) -> str:
        return Path(self.name).stem

    @property
    def suffix(self) -> str:
        return Path(self.name).suffix

    @property
    def parent(self) -> RemotePlace:
        """The folder it lies in; a bucket or host is its own."""
        folder, slash, _ = _split(self.url)[1].partition("?")[0].rpartition("/")
        return RemotePlace(f"{self.scheme}://{folder}") if slash and folder else self

    @property
    def parents(self) -> tuple[RemotePlace, ...]:
        return () if self.parent == self else (self.parent, *self.parent.parents)

    def __truediv__(self, name: str) -> RemotePlace:
        place = self
        for part in name.split("/"):
            place = place.parent if part == ".." else place if part in ("", ".") else RemotePlace(f"{place.url}/{part}")
        return place

    def absolute(self) -> RemotePlace:
        return self

    def exists(self) -> bool:
        return look(self) != ""

    def is_dir(self) -> bool:
        return look(self) == "folder"

    def is_file(self) -> bool:
        return look(self) == "file"

    def read_bytes(self) -> bytes:
        """The content of a file that a user named; what goes wrong is said in three lines."""
        try:
            return read_url(self.url)
        except OSError as error:
            raise explain(self, error) from error


DataPlace = Path | RemotePlace
"""Where data lies: on this machine, or behind a URL."""


def is_url(text: object) -> bool:
    """Whether a text names something by URL; a `Path` never does, since it has one slash where a URL has two."""
    return isinstance(text, str) and "://" in text and _URL.match(text) is not None


def locate(named: str | Path | RemotePlace) -> DataPlace:
    """The place that a user named: a `Path`, also for a `file:` URL, or a `RemotePlace`."""
    if isinstance(named, RemotePlace):
        return named
    if not is_url(named):
        return Path(named)
    scheme, rest = _split(str(named))
    if scheme.lower() in _LOCAL_SCHEMES:
        return Path(rest.removeprefix("localhost"))
    refuse_secrets(str(named))
    return RemotePlace(str(named))


def url_behind(path: Path) -> str:
    """The URL that a path was made of, which cost it a slash; "" for any other path."""
    found = re.fullmatch(r"([a-z][a-z0-9]+):/([^/].*)", str(path))
    return "" if found is None else f"{found[1]}://{found[2]}"


def join(folder: DataPlace, named: str) -> DataPlace:
    """What `named` means in a table that lies in `folder`: a URL or an absolute path is itself, the rest counts from there."""
    if is_url(named):
        return locate(named)
    return Path(named) if Path(named).is_absolute() else folder / named


def _split(url: str) -> tuple[str, str]:
    found = _URL.match(url)
    assert found is not None, f"no URL: {url}"
    return found[1], found[2]


def refuse_secrets(*named: object) -> None:
    """Refuse URLs with a login, or with a query that looks like a signature or key."""
    for url in named:
        if is_url(url) and (what := _secret_in(str(url))):
            raise UsageError(
                f"{hide_secrets(str(url))} carries {what}",
                why="places are written down in unchoke.toml, the manifest and the report, where a secret must not be",
                try_="leave it out of the URL, and give it by the environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
                "AWS_PROFILE, HF_TOKEN, GOOGLE_APPLICATION_CREDENTIALS, ~/.netrc",
            )


def _secret_in(url: str) -> str:
    scheme, rest = _split(url)
    login = _HOST_LOGIN.match(rest)
    if login is not None and (":" in login[0] or scheme.lower() in (*_WEB_SCHEMES, *_BUCKETS)):
        return "a login before the @"
    query = parse_qsl(rest.partition("?")[2].partition("#")[0], keep_blank_values=True)
    if any(_SECRET_NAME.search(name) or len(value) > _LONGEST_PLAIN_VALUE for name, value in query):
        return "a signature, a key or a token in its query"
    return ""


def hide_secrets(text: str) -> str:
    """A text in which every URL is without login and query: what stores and libraries say may hold signed ones."""

    def plain(found: re.Match[str]) -> str:
        login = "…@" if f"{found[1]}{found[2]}" != found[0].partition("?")[0] else ""
        return f"{found[1]}{login}{found[2]}{'?…' if found[3] else ''}"

    return _IN_TEXT.sub(plain, text)


def cannot_list(place: DataPlace) -> bool:
    """Whether a store has no folders: a web server names its files to nobody."""
    return isinstance(place, RemotePlace) and place.scheme in _WEB_SCHEMES


def refuse_unlisted(place: DataPlace) -> None:
    """Say what to give instead of a folder of a web server."""
    if isinstance(place, RemotePlace) and cannot_list(place):
        raise UsageError(
            f"{place} cannot be listed",
            why=f"{place.scheme}:// has files and no folders: a web server does not say which files it has",
            try_="give a table with the URL of each file in a column: path,label",
        )


def look(place: RemotePlace) -> Kind:
    """What lies there; an error in three lines where that cannot be asked."""
    try:
        info = _info(place.url)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise explain(place, error) from error
    return "folder" if info.get("type") == "directory" and place.scheme not in _WEB_SCHEMES else "file"


def read_url(url: str, start: int | None = None, end: int | None = None) -> bytes:
    """The content of a file, or its bytes from `start` to `end`."""
    found: bytes = ask(url, lambda fs, path: fs.cat_file(path, start=start, end=end))
    return found


def stat_url(url: str) -> tuple[int, int]:
    """Size, and a number that changes with the content as far as the store says; see `stamp`."""
    info = _info(url)
    if info.get("type") == "directory" and _split(url)[0] not in _WEB_SCHEMES:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), url)
    return int(info.get("size") or 0), stamp(info)


def recent_stat(url: str) -> tuple[int, int]:
    """`stat_url` as of a few seconds ago: for files that are opened over and over, and for those sought beside them."""
    known = _this_process().stats
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
    """What stands for a local file's time: seconds of the last change, and below them a digest of that and of the store's tag.

    Stores know times to the second alone, tags tell changes within one. `NO_STAMP` where a store says neither.
    """
    times = [info[name] for name in _TIMES if info.get(name)]
    tags = [info[name] for name in _TAGS if info.get(name)]
    if not times and not tags:
        return NO_STAMP
    version = "\x1f".join(map(str, times[:1] + tags)).encode("utf-8", "surrogatepass")
    below = int.from_bytes(hashlib.blake2b(version, digest_size=8).digest(), "big") % 10**9
    return _seconds(times[0] if times else 0) * 10**9 + below


def _seconds(when: Any) -> int:
    if hasattr(when, "timestamp"):
        return int(when.timestamp())
    try:
        return int(float(when))
    except (TypeError, ValueError):  # a date in words: it is in the digest
        return 0


def _info(url: str) -> dict[str, Any]:
    found: dict[str, Any] = ask(url, lambda fs, path: fs.info(path))
    return found


def ask(url: str, request: Callable[[Any, str], Answer]) -> Answer:
    """`request(file system, path)`, tried again where it fails in a way that may pass.

    `FileNotFoundError` or `StoreError` for one file; `MachineError` where a package or credentials lack, or nothing answers.
    """
    process = _this_process()
    fs = process.filesystem(url)
    for wait_s in (*WAITS_S, None):
        try:
            with process.requests:
                answer = request(fs, fs._strip_protocol(url))
        except _OUR_BUGS:
            raise
        except Exception as error:
            failure = _translate(url, error)
            if wait_s is None or not failure.passes:
                process.count_failure(failure)
                raise failure.error from error
            time.sleep(wait_s)
        else:
            process.num_failed = 0
            return answer
    raise AssertionError("the last try returns or raises")


@dataclass(frozen=True)
class _Failure:
    """An error of a store in our words, and whether another try may help."""

    error: OSError | UnchokeError
    passes: bool = False


def _translate(url: str, error: Exception) -> _Failure:
    """What a library says of a request."""
    if isinstance(error, UnchokeError):
        return _Failure(error)
    if _split(url)[0] in _WEB_SCHEMES and isinstance(error, FileNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__  # whatever went wrong when a size was asked for is told as a missing file
    status = _status(error)
    if isinstance(error, (FileNotFoundError, NotADirectoryError)) or status in (404, 410):
        return _Failure(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url))
    if "Credentials" in type(error).__name__:
        return _Failure(_no_credentials(url, error))
    said = hide_secrets(str(error).strip()) or type(error).__name__
    if isinstance(error, PermissionError) or status in (401, 403):
        return _Failure(StoreError(f"access was refused: {said}", url, "access"))
    passing = status in _PASSING_STATUS if status else _may_pass(error)
    said = f"HTTP status {status}" if status else said
    tries = f"{len(WAITS_S) + 1} tries: " if passing else ""
    return _Failure(StoreError(tries + said, url, "network" if passing else "other"), passing)


def _status(error: Exception) -> int | None:
    """The status of the HTTP answer that an error stands for."""
    response = getattr(error, "response", None)
    candidates = (getattr(error, "status", None), getattr(error, "code", None), getattr(response, "status_code", None))
    return next((value for value in candidates if isinstance(value, int) and 100 <= value < 600), None)


def _may_pass(error: Exception) -> bool:
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _PASSING_ERRNO or error.errno < 0  # below zero: no such host, or no answer about it
    network = type(error).__module__.partition(".")[0] in _NETWORK_PACKAGES
    return network or isinstance(error, (TimeoutError, ConnectionError, EOFError))


def _no_credentials(url: str, error: Exception) -> MachineError:
    ways = {"s3": "aws configure, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; of a public bucket: FSSPEC_S3_ANON=true"}
    return MachineError(
        f"there are no credentials for {_root(url)}",
        why=f"the store's library looked for them in the environment and its own files: {hide_secrets(str(error))}",
        try_=ways.get(_split(url)[0], "log in with the store's own tool, or set its environment variables"),
    )


def _root(url: str) -> str:
    """The bucket or host of a URL."""
    scheme, rest = _split(url)
    return f"{scheme}://{rest.partition('/')[0]}"


@dataclass(frozen=True)
class S3Store:
    """Where requests for a bucket go, as fsspec's library found it in the environment and its files."""

    endpoint_url: str
    region: str
    anonymous: bool


def find_s3(url: str) -> S3Store:
    """The store behind an s3 URL, for those who read it by other means."""

    def find(fs: Any, _path: str) -> S3Store:
        fs.connect()
        return S3Store(str(fs.s3.meta.endpoint_url or ""), str(fs.s3.meta.region_name or ""), bool(fs.anon))

    known = _this_process().s3_stores
    if (bucket := _root(url)) not in known:
        known[bucket] = ask(url, find)
    return known[bucket]


def explain(place: RemotePlace, error: OSError) -> UnchokeError:
    """An error about a place that a user named, in three lines."""
    if isinstance(error, FileNotFoundError):
        return explain_missing(place)
    if not isinstance(error, StoreError):
        return UsageError(f"{place} cannot be read", why=error.strerror or str(error), try_="check the URL")
    if error.cause == "access":
        return MachineError(
            f"{place} may not be read",
            why=error.reason,
            try_="ask for the right to list and read it, or give other credentials (AWS_PROFILE, AWS_ACCESS_KEY_ID, HF_TOKEN)",
        )
    if error.cause == "network":
        return MachineError(
            f"{_root(place.url)} does not answer",
            why=error.reason,
            try_="check the network and the address (AWS_ENDPOINT_URL for a store of your own), then run the same command again",
        )
    return UsageError(f"{place} cannot be read", why=error.reason, try_="check the URL")


def explain_missing(place: RemotePlace, close: str = "") -> UsageError:
    """The error for a place that is not there; `close` is a name beside it that may be meant."""
    root = RemotePlace(_root(place.url))
    if place.scheme in _BUCKETS and (place == root or not root.exists()):
        return UsageError(
            f"there is no bucket {root}",
            why="the store answered, and knows none of that name",
            try_="check the spelling, and AWS_ENDPOINT_URL if it is a store of your own",
        )
    if close:
        better = f"unchoke check {shlex.quote(str(place.parent / close))}"
        return UsageError(f"no such file or folder: {place}", why=f"{place.parent} has {close!r}", try_=better)
    why = f"{place.parent} holds nothing of that name" if place.parent != place else "nothing is there"
    return UsageError(f"no such file or folder: {place}", why=why, try_="check the spelling of the URL")


class _Process:
    """The file systems of this process, how many requests are under way, and how many failed in a row."""

    def __init__(self) -> None:
        self.requests = threading.BoundedSemaphore(MOST_REQUESTS)
        self.num_failed = 0
        self.stats: dict[str, tuple[float, tuple[int, int] | None]] = {}
        self.s3_stores: dict[str, S3Store] = {}
        self._making = threading.Lock()
        self._made: dict[tuple[str, str], Any] = {}

    def filesystem(self, url: str) -> Any:
        scheme = _split(url)[0].lower()
        kind = _store_class(scheme)
        own = kind._get_kwargs_from_urls(url) if scheme not in _BUCKETS else {}
        key = (scheme, repr(sorted(own.items())))
        with self._making:
            if key not in self._made:
                self._made[key] = _make(scheme, kind, own)
            return self._made[key]

    def count_failure(self, failure: _Failure) -> None:
        """Files of a store that answers nobody need not be tried one by one."""
        error = failure.error
        if not isinstance(error, StoreError) or error.cause == "other":
            return
        self.num_failed += 1
        if self.num_failed >= _GIVE_UP_AFTER:
            self.num_failed = 0
            raise explain(RemotePlace(error.url), error)


def _make(scheme: str, kind: Any, own: dict[str, Any]) -> Any:
    """A file system that remembers no listings and leaves tries to `ask`."""
    options: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True, **own}
    if scheme in ("s3", "s3a"):
        options["config_kwargs"] = {"retries": {"total_max_attempts": 1}}
    if scheme in _WEB_SCHEMES:
        import aiohttp

        patience = aiohttp.ClientTimeout(total=None, connect=10, sock_connect=10, sock_read=30)
        options["client_kwargs"] = {"timeout": patience, "trust_env": True}
    try:
        fs = kind(**options)
    except ImportError as error:
        raise _missing_package(scheme, error) from error
    if scheme in ("s3", "s3a"):
        fs.retries = 1
    return fs


def _store_class(scheme: str) -> Any:
    try:
        import fsspec
    except ImportError as error:
        raise missing_extra("fsspec", extra="remote", purpose=f"reading {scheme}://") from error
    try:
        return fsspec.get_filesystem_class(scheme)
    except ImportError as error:
        raise _missing_package(scheme, error) from error
    except ValueError as error:
        raise UsageError(
            f"{scheme}:// is not a kind of place that is known here",
            why=f"known are {', '.join(f'{one}://' for one in _USUAL_SCHEMES)} and what else fsspec knows",
            try_="check the spelling of the URL, or copy the files to a folder of this machine",
        ) from error


def _missing_package(scheme: str, error: ImportError) -> MachineError:
    """By what fsspec says would be needed; s3 and https have an extra of ours."""
    from fsspec.registry import known_implementations

    if scheme in ("s3", "s3a", *_WEB_SCHEMES):
        package = "s3fs" if scheme.startswith("s3") else "aiohttp"
        return missing_extra(package, extra="remote", purpose=f"reading {scheme}://")
    package = str(known_implementations.get(scheme, {}).get("class", scheme)).partition(".")[0]
    name = {"huggingface_hub": "huggingface_hub", "fsspec": error.name or scheme}.get(package, package)
    return MachineError(
        f"reading {scheme}:// needs the package {name!r}, which is not installed",
        why=hide_secrets(str(error)),
        try_=f"pip install {name}",
    )


@cache
def _processes() -> list[_Process]:
    """The state of this process. A fork may happen while another thread holds its locks, and loops of a parent do not run in a
    child, so a child begins anew and leaves what it inherited alone."""
    kept = [_Process()]
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: kept.append(_Process()))
    return kept


def _this_process() -> _Process:
    return _processes()[-1]
