"""Starts the watcher in every Python process of a watched command, then hands on to any other `sitecustomize`.

This folder stands first in PYTHONPATH while `unchoke profile` runs a script. `unchoke` is loaded from its own place, without
touching `sys.path`. Whatever goes wrong here is said on stderr, and the script runs unwatched. The interpreter may be an old one:
plain code.
"""

import importlib.machinery
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))


def hand_on() -> None:
    """Run the `sitecustomize` that this one stands in front of, if there is one."""
    elsewhere = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def load_unchoke() -> None:
    """Make `import unchoke.chokes.watch` mean this copy, whatever the interpreter has installed."""
    where = os.path.join(PACKAGE, "__init__.py")
    spec = importlib.util.spec_from_file_location("unchoke", where, submodule_search_locations=[PACKAGE])
    if spec is None or spec.loader is None:
        raise ImportError("no package at " + PACKAGE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["unchoke"] = module
    spec.loader.exec_module(module)


def start() -> None:
    """Watch this process; an interpreter that is too old, or an error of ours, is told and passed over."""
    if "UNCHOKE_WATCH_DIR" not in os.environ:
        return
    if sys.version_info < (3, 11):
        tell("this is Python %d.%d; watching needs 3.11 or newer" % sys.version_info[:2])
        leave_if_unprotected()
        return
    try:
        load_unchoke()
        import unchoke.chokes.watch

        unchoke.chokes.watch.start()
    except Exception as error:
        sys.modules.pop("unchoke", None)
        tell("%s: %s" % (type(error).__name__, error))
        leave_if_unprotected()


def leave_if_unprotected() -> None:
    """A run that was to leave no trace must not go on without the watcher, which sees to that."""
    if "UNCHOKE_WATCH_SCRATCH" in os.environ:
        os._exit(70)


def tell(why: str) -> None:
    """One line on stderr, written as the interpreter starts up: its streams may not stand yet."""
    os.write(2, ("unchoke: this process is not watched (" + why + ")\n").encode())


start()
hand_on()
