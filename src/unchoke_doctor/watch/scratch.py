"""A scratch folder in front of the file system: what a script writes lands there, and is found there when it reads it back.

In come the functions of `builtins`, `io`, `os` and `shutil` that write, look or remove, and torch's own; out come others that do
the same to a copy of the path below the scratch folder. Files that were there before are never changed: what a script would have
removed or renamed stays, with a note. Not caught: what C extensions write by themselves (image writers, databases), programs the
script starts, and the network. Where the Linux kernel has Landlock, a fence makes the first two fail instead: this process, its
threads and its children can then write below the given folders only, C extensions included. It has to be put up before threads
start, and cannot be taken down.
"""

from __future__ import annotations

import builtins
import ctypes
import errno
import io
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from unchoke_doctor.watch import hooks
from unchoke_doctor.watch.hooks import Function
from unchoke_doctor.watch.recorder import Recorder

_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_real_stat, _real_makedirs = os.stat, os.makedirs


class Scratch:
    """Where paths lead while a script runs that must leave no trace. `left_alone`: folders where it may write for good."""

    def __init__(self, folder: str, recorder: Recorder, *, left_alone: tuple[str, ...] = ()) -> None:
        self._folder = folder
        self._recorder = recorder
        self.left_alone = tuple(os.path.join(place, "") for place in (folder, *left_alone))
        self._ours: set[str] = set()

    def place_of(self, path: str) -> str:
        """The copy of an absolute path below the scratch folder."""
        return os.path.join(self._folder, "files", path.lstrip(os.sep))

    def to_read(self, path: Any) -> Any:
        """Where to look: the scratch copy of what was written, else the path itself."""
        absolute = _absolute(path)
        return self.place_of(absolute) if absolute in self._ours else path

    def to_write(self, path: Any, *, keep: bool = False) -> Any:
        """Where to write; with `keep` what the file holds already is copied there first."""
        absolute = _absolute(path)
        if absolute is None or absolute.startswith(self.left_alone):
            return path
        if not self.is_folder(os.path.dirname(absolute)):
            return path  # fails there by itself, as it should
        place = self.place_of(absolute)
        _real_makedirs(os.path.dirname(place), exist_ok=True)
        if keep and absolute not in self._ours and _exists(absolute):
            shutil.copyfile(absolute, place)
        self._ours.add(absolute)
        self._recorder.note("the replay wrote to a scratch folder instead of the script's own files")
        return place

    def is_folder(self, absolute: str) -> bool:
        return absolute in self._ours or _exists(absolute)

    def is_ours(self, path: Any) -> bool:
        """Whether it may be changed as the script wishes: written by it just now, or temporary anyway."""
        absolute = _absolute(path)
        return absolute is None or absolute in self._ours or absolute.startswith(self.left_alone)

    def make_folder(self, path: Any) -> None:
        absolute = _absolute(path)
        assert absolute is not None
        if self.is_folder(absolute):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        if not self.is_folder(os.path.dirname(absolute)):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        _real_makedirs(self.place_of(absolute), exist_ok=True)
        self._ours.add(absolute)

    def moved(self, source: Any, target: Any) -> None:
        """To None: removed."""
        self._ours.discard(_absolute(source) or "")
        self._ours.add(_absolute(target) or "")

    def kept(self, what: str) -> None:
        self._recorder.note(f"the replay did not let the script {what} files that were there before")


def _absolute(path: Any) -> str | None:
    """None for what is no path: descriptors, open files."""
    return os.path.abspath(os.fsdecode(path)) if isinstance(path, str | bytes | os.PathLike) else None


def _exists(path: str) -> bool:
    try:
        _real_stat(path)
    except OSError:
        return False
    return True


def put_in_front(scratch: Scratch) -> None:
    """From now on this process sees the scratch folder in front of its files."""
    read, write = scratch.to_read, scratch.to_write

    def put(owner: Any, names: str, make: Callable[[Function], Function]) -> None:
        for name in names.split():
            hooks.replace(owner, name, make, stand_in=True)

    def opening(original: Function) -> Function:
        def open_(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            writes = not set(mode).isdisjoint("wax+")
            return original(write(file, keep="w" not in mode) if writes else read(file), mode, *args, **kwargs)

        return open_

    def opening_low(original: Function) -> Function:
        def open_(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> Any:
            if dir_fd is None:
                path = write(path, keep=not flags & os.O_TRUNC) if flags & _WRITE_FLAGS else read(path)
            return original(path, flags, mode, dir_fd=dir_fd)

        return open_

    def making(original: Function) -> Function:
        def mkdir(path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
            absolute = _absolute(path)
            if dir_fd is not None or absolute is None or absolute.startswith(scratch.left_alone):
                original(path, mode, dir_fd=dir_fd)
            else:
                scratch.make_folder(path)

        return mkdir

    def looking(original: Function) -> Function:
        return lambda path=".", *args, **kwargs: original(read(path), *args, **kwargs)

    def renaming(original: Function) -> Function:
        def rename(source: Any, target: Any, **kwargs: Any) -> None:
            if not scratch.is_ours(source):
                scratch.kept("rename")
                return
            original(read(source), write(target), **kwargs)
            scratch.moved(source, target)

        return rename

    def changing(what: str, original: Function) -> Function:
        def change(path: Any, *args: Any, **kwargs: Any) -> Any:
            if "dir_fd" not in kwargs and not scratch.is_ours(path) and _exists(_absolute(path) or ""):
                scratch.kept(what)
                return None
            result = original(read(path), *args, **kwargs)
            if what == "remove":
                scratch.moved(path, None)
            return result

        return change

    def linking(original: Function) -> Function:
        return lambda source, target, *args, **kwargs: original(read(source), write(target), *args, **kwargs)

    put(builtins, "open", opening)
    put(io, "open", opening)
    put(os, "open", opening_low)
    put(os, "mkdir", making)
    put(os, "stat lstat access listdir scandir", looking)
    put(os, "rename replace", renaming)
    put(os, "remove unlink rmdir", partial(changing, "remove"))
    put(shutil, "rmtree", partial(changing, "remove"))
    put(os, "utime chmod chown truncate setxattr", partial(changing, "change"))
    put(os, "link symlink", linking)
    hooks.when_imported("torch", lambda: _put_before_torch(scratch))
    hooks.when_imported("safetensors.torch", lambda: _put_before(scratch, "safetensors.torch", "save_file", "load_file"))


def _put_before_torch(scratch: Scratch) -> None:
    """torch opens files in C."""
    _put_before(scratch, "torch.serialization", "save", "load")
    torch: Any = sys.modules["torch"]
    torch.save, torch.load = torch.serialization.save, torch.serialization.load


def _put_before(scratch: Scratch, module: str, save: str, load: str) -> None:
    """Functions whose first argument (of saving, the second) is a file, or is named `f` or `filename`."""

    def make(original: Function, at: int, place: Callable[[Any], Any]) -> Function:
        def placed(*args: Any, **kwargs: Any) -> Any:
            args = tuple(place(value) if number == at else value for number, value in enumerate(args))
            kwargs = {name: place(value) if name in ("f", "filename") else value for name, value in kwargs.items()}
            return original(*args, **kwargs)

        return placed

    hooks.replace(sys.modules[module], save, lambda original: make(original, 1, scratch.to_write))
    hooks.replace(sys.modules[module], load, lambda original: make(original, 0, scratch.to_read))


_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_VERSION_FLAG = 1
_BENEATH = 1
_NO_NEW_PRIVILEGES = 38
_WRITES = 1 << 1 | sum(1 << bit for bit in range(4, 13))  # write, remove and make files, folders, links, sockets, …
_REFER, _TRUNCATE = 1 << 13, 1 << 14  # from versions 2 and 3 on
_JUST_THE_PATH = getattr(os, "O_PATH", 0)


class _FolderRule(ctypes.Structure):
    """One rule of the fence: what is allowed below a folder."""

    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def put_up_fence(folders: Iterable[str]) -> bool:
    """Let this process write below `folders` only; whether the kernel does that."""
    if not sys.platform.startswith("linux"):
        return False
    library = ctypes.CDLL(None, use_errno=True)
    version = int(library.syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG))
    rights = _WRITES | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    handled = ctypes.c_uint64(rights)
    ruleset = library.syscall(_CREATE_RULESET, ctypes.byref(handled), ctypes.sizeof(handled), 0) if version >= 1 else -1
    if ruleset < 0:
        return False
    try:
        for folder in filter(os.path.isdir, folders):
            descriptor = os.open(folder, _JUST_THE_PATH | os.O_CLOEXEC)
            library.syscall(_ADD_RULE, ruleset, _BENEATH, ctypes.byref(_FolderRule(rights, descriptor)), 0)
            os.close(descriptor)
        no_new_privileges: bool = library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0
        return no_new_privileges and bool(library.syscall(_RESTRICT_SELF, ruleset, 0) == 0)
    finally:
        os.close(ruleset)
