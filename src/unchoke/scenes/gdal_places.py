"""Scenes behind a URL, as GDAL names and reaches them: it fetches the parts of a file that are read, by itself.

In: a path or URL. Out: what to open, and the settings to open it under. GDAL looks for credentials where the store's own tools
do (the environment, its files, the machine's role); address and region of an S3 store are those that fsspec found. Why not
through fsspec: docs/decisions/0033-photos-come-by-fsspec-scenes-by-gdal.md.
"""

from __future__ import annotations

from unchoke.core.remote import RemotePlace, locate
from unchoke.core.stores import WAITS_S, find_s3
from unchoke.core.urls import is_url
from unchoke.scenes.scene_facts import SceneError

_PREFIXES = {"s3": "/vsis3/", "s3a": "/vsis3/", "gs": "/vsigs/", "gcs": "/vsigs/", "az": "/vsiaz/", "abfs": "/vsiaz/"}
_WEB = ("http", "https")
_PATIENCE = {
    "GDAL_HTTP_MAX_RETRY": str(len(WAITS_S)),
    "GDAL_HTTP_RETRY_DELAY": str(WAITS_S[0]),
    "GDAL_HTTP_CONNECTTIMEOUT": "10",
    "GDAL_HTTP_LOW_SPEED_TIME": "30",
    "GDAL_HTTP_LOW_SPEED_LIMIT": "1",
    "CPL_VSIL_CURL_NON_CACHED": ":".join(dict.fromkeys([*_PREFIXES.values(), "/vsicurl/"])),
}
"""A few tries, and nothing remembered of a file beyond its handle: one that is opened again may have been replaced."""


def gdal_name(path: str) -> str:
    """What GDAL opens; a `SceneError` for a store that it does not know."""
    if not is_url(path):
        return path
    place = locate(path)
    if not isinstance(place, RemotePlace):
        return str(place)
    if place.scheme in _WEB:
        return f"/vsicurl/{place}"
    if place.scheme not in _PREFIXES:
        raise SceneError(
            f"{path} cannot be read as a scene",
            code="unreadable-scene",
            why=f"parts of rasters are read from {', '.join(f'{one}://' for one in ('s3', 'gs', 'az', *_WEB))} and local files",
            try_="copy the scenes to a folder of this machine, then give that folder",
            path=path,
        )
    return _PREFIXES[place.scheme] + place.url.partition("://")[2]


def gdal_options(path: str) -> dict[str, str]:
    """The settings that reading `path` needs beside those of local files."""
    if not path.startswith(("s3://", "s3a://")):
        return dict(_PATIENCE)
    store = find_s3(path)
    address = store.endpoint_url.rstrip("/")
    options = {**_PATIENCE, "AWS_NO_SIGN_REQUEST": "YES" if store.anonymous else "NO"}
    if store.region:
        options["AWS_REGION"] = store.region
    if not address.endswith(".amazonaws.com"):
        options["AWS_S3_ENDPOINT"] = address.partition("://")[2]
        options["AWS_HTTPS"] = "YES" if address.startswith("https:") else "NO"
        options["AWS_VIRTUAL_HOSTING"] = "FALSE"
    return options
