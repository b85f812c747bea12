"""URLs as text: what is one, its parts, and what in it must not be written down. Nothing is asked of any store here."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qsl

from unchoke.core.errors import UsageError

USUAL_SCHEMES = ("s3", "gs", "az", "hf", "https", "memory", "file")
LOCAL_SCHEMES = ("file", "local")
WEB_SCHEMES = ("http", "https")
BUCKETS = ("s3", "s3a", "gs", "gcs")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+)://(.*)", re.DOTALL)
_HOST_LOGIN = re.compile(r"^[^/?#]*@")
_SECRET_NAME = re.compile(r"sig|token|secret|passw|credential|key|auth|session|jwt|code", re.IGNORECASE)
_LONGEST_PLAIN_VALUE = 24
_IN_TEXT = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+://)(?:[^/\s@'\"]*@)?([^\s?'\"<>]*)(\?[^\s'\"<>]*)?")


def is_url(text: object) -> bool:
    """Whether a text names something by URL; a `Path` never does, since it has one slash where a URL has two."""
    return isinstance(text, str) and "://" in text and _URL.match(text) is not None


def url_behind(path: Path) -> str:
    """The URL that a path was made of, which cost it a slash; "" for any other path."""
    found = re.fullmatch(r"([a-z][a-z0-9]+):/([^/].*)", str(path))
    return "" if found is None else f"{found[1]}://{found[2]}"


def split_url(url: str) -> tuple[str, str]:
    found = _URL.match(url)
    assert found is not None, f"no URL: {url}"
    return found[1], found[2]


def refuse_secrets(*named: object) -> None:
    """Refuse URLs with a login, or with a query that looks like a signature or key."""
    for url in named:
        if is_url(url) and (what := _secret_in(str(url))):
            raise UsageError(
                f"{hide_secrets(str(url))} carries {what}",
                code="secret-in-url",
                why="places are written down in unchoke.toml, the manifest and the report, where a secret must not be",
                try_="leave it out of the URL, and give it by the environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
                "AWS_PROFILE, HF_TOKEN, GOOGLE_APPLICATION_CREDENTIALS, ~/.netrc",
            )


def _secret_in(url: str) -> str:
    scheme, rest = split_url(url)
    login = _HOST_LOGIN.match(rest)
    if login is not None and (":" in login[0] or scheme.lower() in (*WEB_SCHEMES, *BUCKETS)):
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


def root_of(url: str) -> str:
    """The bucket or host of a URL."""
    scheme, rest = split_url(url)
    return f"{scheme}://{rest.partition('/')[0]}"


def parent_of(url: str) -> str:
    """The folder a URL lies in; a bucket or host is its own."""
    scheme, rest = split_url(url)
    folder, slash, _ = rest.partition("?")[0].rpartition("/")
    return f"{scheme}://{folder}" if slash and folder else url
