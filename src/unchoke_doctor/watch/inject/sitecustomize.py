"""Starts the watcher in every Python process of a watched command, then hands on to any other `sitecustomize`.

This folder stands first in PYTHONPATH while `unchoke profile` runs a script. The package is loaded from its own place, without
touching `sys.path`. If anything goes wrong here, one line on stderr says so and the script runs unwatched. The interpreter may be
an old one: plain code.
"""

import importlib.machinery
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(os.path.dirname(HERE))


def hand_on() -> None:
    """Run the `sitecustomize` that this one stands in front of, if there is one."""
    elsewhere = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def load_package() -> None:
    """Make `import unchoke_doctor.watch` mean this copy, whatever the interpreter has installed."""
    where = os.path.join(PACKAGE, "__init__.py")
    spec = importlib.util.spec_from_file_location("unchoke_doctor", where, submodule_search_locations=[PACKAGE])
    if spec is None or spec.loader is None:
        raise ImportError("no package at " + PACKAGE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["unchoke_doctor"] = module
    spec.loader.exec_module(module)


def start() -> None:
    """Watch this process. A replay must leave no trace: it does not go on without the watcher, which sees to that."""
    if "UNCHOKE_WATCH_DIR" not in os.environ:
        return
    try:
        if sys.version_info < (3, 11):
            raise RuntimeError("this is Python %d.%d; watching needs 3.11 or newer" % sys.version_info[:2])
        load_package()
        import unchoke_doctor.watch

        unchoke_doctor.watch.start()
    except Exception as error:
        sys.modules.pop("unchoke_doctor", None)
        # written to the descriptor: the interpreter's streams may not exist yet
        os.write(2, ("unchoke: this process is not watched (%s: %s)\n" % (type(error).__name__, error)).encode())
        if "UNCHOKE_WATCH_SCRATCH" in os.environ:
            os._exit(70)


start()
hand_on()
