"""A dataset of the user's own by its name: `my_module:make_dataset`, or `train.py:train_set`.

In: the words after `--dataset`. Out: the object, made by the user's code, which runs here: a module from the folder the command
is typed in or from wherever Python looks, and in it an object, or a class or function that makes one without arguments. What
goes wrong in that code is an explained error. Nothing is loaded from the object here.
"""

from __future__ import annotations

import importlib
import sys
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from unchoke.core.errors import UsageError

_EXAMPLE = "--dataset my_module:make_dataset, where make_dataset() returns what a DataLoader would be given"


def load_dataset(name: str) -> Any:
    """The object that `MODULE:NAME` stands for."""
    module_name, colon, attribute = name.rpartition(":")
    if not colon or not module_name or not attribute:
        raise UsageError(
            f"--dataset {name} names no dataset",
            code="bad-dataset-name",
            why="it is written as MODULE:NAME or FILE.py:NAME",
            try_=_EXAMPLE,
        )
    found = _find(_import(module_name), attribute, module_name)
    makes_one = isinstance(found, type) or (callable(found) and not _can_be_loaded(found))
    dataset = _make(found, name) if makes_one else found
    if not _can_be_loaded(dataset):
        raise UsageError(
            f"{name} is no dataset but {type(dataset).__name__}",
            code="not-a-dataset",
            why="it has neither dataset[0] nor a way to go through its items",
            try_=_EXAMPLE,
        )
    return dataset


def _can_be_loaded(value: Any) -> bool:
    return hasattr(value, "__getitem__") or hasattr(value, "__iter__")


def _import(name: str) -> ModuleType:
    """The module, from a file's own folder or the folder we are in; a worker is told of that folder too."""
    file = Path(name)
    folder, module_name = (file.resolve().parent, file.stem) if file.suffix == ".py" else (Path.cwd(), name)
    if file.suffix == ".py" and not file.is_file():
        raise UsageError(
            f"there is no file {name}", code="no-such-file", why="the dataset was to come from it", try_="check the path"
        )
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and module_name.split(".")[0] == error.name.split(".")[0]:
            why = f"it lies neither in {folder} nor where Python looks for modules"
            raise UsageError(
                f"there is no module {module_name}", code="no-such-module", why=why, try_=f"type it in its folder; {_EXAMPLE}"
            ) from None
        raise _failed(f"the module {module_name}", error) from error
    except Exception as error:  # the user's own code may raise anything
        raise _failed(f"the module {module_name}", error) from error


def _find(module: ModuleType, attribute: str, module_name: str) -> Any:
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            close = get_close_matches(part, dir(found), n=1)
            own = [name for name in vars(module) if not name.startswith("_")][:8]
            raise UsageError(
                f"{module_name} has no {attribute}",
                code="no-such-dataset",
                why=f"there is {', '.join(own) or 'nothing'} in it",
                try_=f"--dataset {module_name}:{close[0]}" if close else _EXAMPLE,
            )
        found = getattr(found, part)
    return found


def _make(maker: Any, name: str) -> Any:
    try:
        return maker()
    except Exception as error:  # the user's own code may raise anything
        raise _failed(f"{name}()", error) from error


def _failed(what: str, error: Exception) -> UsageError:
    return UsageError(
        f"{what} did not give a dataset",
        code="dataset-failed",
        why=f"its own code raised {type(error).__name__}: {error}",
        try_="write a function without arguments that returns the dataset, and name that: --dataset MODULE:FUNCTION",
    )
