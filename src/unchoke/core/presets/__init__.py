"""Settings that belong together, as TOML files: each names a kind of data and the way to train on it.

In: a name (the file beside this one), or the path of a `.toml` of one's own. Out: what it is for, what it expects of the data,
and plain values of settings. A file holds what `unchoke.toml` may hold, plus the texts `about` and `expects`. Nothing is checked
against the known settings here: `core/settings.py` does that, and says which value wins.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from unchoke.core import listing
from unchoke.core.errors import UsageError
from unchoke.core.input_file import read_toml, refuse_special

_FOLDER = Path(__file__).parent
_TEXTS = ("about", "expects")


@dataclass(frozen=True)
class Preset:
    """One preset: `about` is a line, `expects` says what the data must look like, `text` is the file as it was written."""

    name: str
    """What `preset` is given to use it."""
    about: str
    """What it is for, in a line."""
    expects: str
    """What the data must look like."""
    values: dict[str, Any] = field(repr=False)
    """Its settings."""
    text: str = field(repr=False)
    """The file as it was written."""

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "about": self.about, "expects": self.expects, "settings": self.values}


def preset_names() -> list[str]:
    """The presets that come with unchoke."""
    return [name.removesuffix(".toml") for name in listing.names(_FOLDER, suffix=".toml")]


def list_presets() -> list[Preset]:
    """The presets, with what each is for and what it expects of the data.

    Returns:
        Every preset that comes with unchoke, by name.

    Example:
        >>> [preset.name for preset in unchoke.list_presets()][:2]
        ['biomass', 'ham10000']
    """
    return [load_preset(name) for name in preset_names()]


def show_preset(name: str) -> Preset:
    """A preset as it is written: every setting, and why.

    Args:
        name: A preset, or a TOML file.

    Returns:
        The preset: what it is for, its settings, and the text of its file.

    Example:
        >>> unchoke.show_preset("leaves-4gb").values["memory"]
        '4GB'
    """
    return load_preset(name)


def load_preset(name: str) -> Preset:
    """The preset of that name, or the file if `name` ends in `.toml`."""
    known = preset_names()
    if name not in known and not name.endswith(".toml"):
        near = get_close_matches(name, known, n=1) or known[:1]
        raise UsageError(
            f"there is no preset {name!r}",
            code="unknown-preset",
            why=f"there are {', '.join(known)}, and any TOML file of your own by its path",
            try_=f"--preset {near[0]}, or `unchoke presets list` for what each does",
        )
    file = _FOLDER / f"{name}.toml" if name in known else Path(name)
    return _parse(name, file)


def _parse(name: str, file: Path) -> Preset:
    refuse_special(file)
    what, try_ = f"the preset {file}", "mend the file, or leave --preset out"
    try:
        text, loaded = read_toml(file, what=what, try_=try_)
    except OSError as error:
        raise UsageError(f"{what} cannot be read", code="unreadable-file", why=str(error), try_=try_) from error
    about, expects = (str(loaded.pop(key, "")) for key in _TEXTS)
    return Preset(name, about, expects, loaded, text)
