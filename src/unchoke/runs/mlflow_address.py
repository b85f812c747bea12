"""Addresses after `--log mlflow:` as text: those that MLflow can never use are refused before anything is trained.

In: an address, or none for the place where MLflow itself would look. Out: a refusal, or nothing; and what two spellings of one
place have in common. Nothing is sent: whether a server answers is found out by the one who sends.
"""

from __future__ import annotations

import os
import re
from importlib.metadata import entry_points
from pathlib import Path
from urllib.parse import urlsplit

from unchoke.core import listing
from unchoke.core.errors import UsageError
from unchoke.core.urls import WEB_SCHEMES, hide_secrets

_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
_VARIABLE, _USUAL = "MLFLOW_TRACKING_URI", "sqlite:///mlflow.db"
_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
}


def quieten_mlflow() -> None:
    """Before MLflow is loaded: it reports to nobody, prints nothing and waits for seconds, unless the user set otherwise."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"  # where results go, and nothing else


def refuse_unusable(address: str) -> None:
    """An address, typed or from the environment, that MLflow can never use, whatever answers there."""
    uri = address or os.environ.get(_VARIABLE, "") or _default()
    if why := _why_never(uri):
        said = (
            f"--log mlflow:{uri}"
            if address
            else f"--log mlflow with {_VARIABLE if os.environ.get(_VARIABLE) else 'the folder'} {uri}"
        )
        raise UsageError(
            f"{hide_secrets(said)} is no address that MLflow can use",
            code="bad-mlflow-address",
            why=hide_secrets(why),
            try_=f"--log mlflow:{_meant(uri)}",
        )


def place_of(address: str) -> str:
    """The same text for the same place, however it is spelt."""
    uri = address or os.environ.get(_VARIABLE) or _USUAL
    parts = urlsplit(uri)
    if parts.scheme.lower() in WEB_SCHEMES:
        return f"{parts.scheme.lower()}://{parts.netloc.lower()}{parts.path.rstrip('/')}"
    file = uri.removeprefix("sqlite:///")
    return uri if file == uri else str(Path(file).resolve())


def _default() -> str:
    """Where MLflow keeps runs if it is told nothing: a database, or the folder of earlier versions where one holds runs."""
    folder = Path("mlruns")
    holds_runs = any((folder / name / "meta.yaml").exists() for name in listing.names(folder) if name.isdigit())
    return str(folder) if holds_runs else _USUAL


def _why_never(uri: str) -> str:
    """Why MLflow cannot use an address; nothing where it may."""
    scheme = re.split(r"[:+]", uri, maxsplit=1)[0].lower() if ":" in uri else ""
    if scheme in WEB_SCHEMES:
        return _why_no_server(uri)
    if scheme in _DATABASES:
        return _why_no_database(uri)
    if uri == "databricks" or scheme == "databricks" or scheme in entry_points(group="mlflow.tracking_store").names:
        return ""
    if len(scheme) <= 1 or scheme == "file":  # of one letter are drives
        return _why_no_folder()
    return f"MLflow knows no {scheme}: it takes a server (http:// or https://) or a database (sqlite:///FILE)"


def _why_no_server(uri: str) -> str:
    try:
        parts = urlsplit(uri)
        is_numbered = parts.port is None or parts.port > 0
    except ValueError:  # brackets that do not match, and ports that are none
        is_numbered = False
    if not is_numbered:
        return "what follows the host's name and its colon is no port number"
    return "" if parts.hostname else "it names no host"


def _why_no_database(uri: str) -> str:
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(uri)
        url.get_dialect().import_dbapi()
    except ImportError as error:
        return f"the package that reaches such a database is not installed ({error})"
    except (ArgumentError, ValueError):
        return "a database has an address like sqlite:///FILE or postgresql://HOST/NAME"
    if url.get_backend_name() == "sqlite" and (url.host or url.database in (None, "", ":memory:")):
        return "sqlite has three slashes and then the path of the file that keeps the runs"
    return ""


def _why_no_folder() -> str:
    """MLflow of some versions keeps runs in folders, later ones only where a variable allows it."""
    quieten_mlflow()
    from mlflow import environment_variables

    allowed = getattr(environment_variables, "MLFLOW_ALLOW_FILE_STORE", None)
    if allowed is None or allowed.get():
        return ""
    return "it is a file or folder, and the MLflow that is installed keeps runs in a database or on a server"


def _meant(uri: str) -> str:
    """An address that works and is near what was typed."""
    if re.match(r"[\w.\-]+:\d+", uri):
        return f"http://{uri}"
    return f"sqlite:///{uri}" if Path(uri).suffix in (".db", ".sqlite", ".sqlite3") and ":" not in uri else _USUAL
