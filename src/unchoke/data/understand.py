"""What a folder is: class folders, a table beside photos, photos with masks, scenes, frames, boxes, or nothing that trains here.

In: the files of a folder by name, and the user's options. Out: a `Reading`, with its reason, or an error that names every
plausible reading with its class counts and the command for each. Names and counts decide; a table is read, and the pixels of a
few files are looked at, only where names leave a question. Nothing is guessed in silence: `--label path:1` needs no rule.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from unchoke.core.errors import UnchokeError, UsageError
from unchoke.core.image_names import suffix_of
from unchoke.core.listing import FileEntry
from unchoke.core.remote import DataPlace
from unchoke.core.units import format_count
from unchoke.data.columns import ID_NAMES, LABEL_NAMES, PATH_NAMES, known_columns, with_header
from unchoke.data.image_files import FileMatcher, FolderFiles, fits, stem_of
from unchoke.data.limits import refuse_boxes
from unchoke.data.sample_set import SPLIT_WORDS, DataSource
from unchoke.data.table import CSV_SUFFIXES, PARQUET_SUFFIXES, PICTURES, TABLE_SUFFIXES, read_table
from unchoke.pixels.image import DecodeError, open_pillow, read_bytes

if TYPE_CHECKING:
    import pandas as pd

_PLAIN = re.compile(
    "train|training|test|testing|val|valid|validation|dev|images?|imgs?|photos?|pictures?|pics|jpe?gs?|pngs?|jpegimages|data|dataset"
    "|raw|files?|all|frames?|part|masks?|labels?|annotations?|gt|groundtruth|segmentation|segmentationclass|segmentationobject"
    "|originals?|resized|full|crops?|thumbs|thumbnails|unlabell?ed|samples|rgb|colou?r"
)
"""Words that folders of photos are called whatever is on them: folders that all bear such names are no classes."""
_RECORDINGS = re.compile(
    "video|vid|clip|seq|sequence|scene|shot|take|recording|session|subject|patient|camera|cam|flight", re.IGNORECASE
)
_MASK_ENDINGS = ("mask", "masks", "label", "labels", "gt", "groundtruth", "seg", "segmentation", "annotation", "target", "matte")
_MASK_NAME = re.compile(r"[_.\- ](?:masks?|labels?|gt|groundtruth|seg|segmentation|annotation)$", re.IGNORECASE)
"""What `segment train` knows masks by that lie among the photos."""
_PHOTO_ENDINGS = ("sat", "image", "img", "photo", "rgb", "leftimg8bit", "input", "original")
_LOSSLESS = frozenset({".png", ".bmp", ".gif", ".tif", ".tiff"})
_MASK_VALUES = 32
_NEAR = 48
_LOOKED_AT = 6
_MOST_FOLDERS = 40
_TABLE_ROWS = 400
_MOST_TABLES = 20
_DEEP = 0.5
"""The share of photos that must lie in folders within class folders for both to be plausible classes."""
_LEVEL = re.compile(r"path(?::(\d+))?")
BY_NAME = "name"


@dataclass(frozen=True)
class Reading:
    """How a folder is read: labels and splits of its images ("" where there is none), or a table with folders of images."""

    value: str
    reason: str
    labels: Sequence[str] = ()
    splits: Sequence[str] | None = None
    inside: Sequence[str] = ()
    """The paths of the images below split folders: what groups are looked for in."""
    at_root: bool = False
    """Whether the classes are the folders directly in DATA."""
    table: pd.DataFrame | None = None
    table_file: DataPlace | None = None
    key: str = ""
    split: str | None = None
    """The column that was made of the tables' names."""
    asked: tuple[str, ...] = ()
    """Columns of the table that a sample of what is to be handed in asks for."""
    images: tuple[DataPlace, ...] = ()
    to_predict: dict[str, int] = field(default_factory=dict)
    """Folders without labels, with how many images each has."""


def says_level(label: str | None) -> bool:
    """Whether `--label` says how folders or names are read, and is no column."""
    return label is not None and (label == BY_NAME or _LEVEL.fullmatch(label) is not None)


def understand(source: DataSource, found: FolderFiles) -> Reading:
    """The one plausible reading of a folder; refused where there are several, or none."""
    folders = _Folders(source.data, found.images)
    if says_level(source.label):
        return folders.read(str(source.label))
    root = source.data
    columns = [source.id, source.path, source.label, source.split, source.fold_column, *source.targets, *(source.long or ())]
    named = [name for name in columns if name is not None]
    table = _find_table(source, found, named)
    if named or not found.images:
        return table or folders.read("path:1")
    readings = _find_masks(root, found, folders)
    if table is not None and (readings or folders.has_classes) and not _says_the_same(table, folders):
        readings = [(f"unchoke fit {_shell(table.table_file)} --images {_shell(root)}", table.reason), *readings]
        if folders.has_classes and len(readings) == 1:
            readings.append((f"unchoke fit {_shell(root)} --label path:1", _counts(folders.labels(1))))
        raise _several(root, readings, "a table in it names the photos, and the folders say something else")
    if readings:
        raise _several(root, readings, f"it holds {readings[0][1]}", code="photos-with-masks")
    if folders.has_classes:
        return folders.decide()
    if table is None:
        refuse_boxes(root, found)
        _refuse_scenes(root, found)
    return table or (folders.read("path:1") if folders.named else Reading("none", "", [""] * len(found.images)))


def _shell(place: object) -> str:
    return shlex.quote(str(place))


def _several(root: DataPlace, readings: Sequence[tuple[str, str]], why: str, *, code: str = "several-readings") -> UsageError:
    """Every plausible reading, each with the command that means it."""
    if len(readings) == 1:
        return UsageError(f"{root} is not what fit trains on", code=code, why=why, try_=readings[0][0])
    what = f"{root} can be read in {len(readings)} ways"
    return UsageError(what, code=code, why=why, try_="\n".join(f"{command}   ({seen})" for command, seen in readings))


def _counts(labels: Iterable[str], most: int = 3) -> str:
    """``12 classes (healthy 400, blight 210, …)``"""
    counts = Counter(label for label in labels if label)
    shown = ", ".join(f"{name} {count:,}" for name, count in counts.most_common(most))
    return f"{format_count(len(counts), 'class', 'classes')}: {shown}{', …' if len(counts) > most else ''}"


# -- class folders ---------------------------------------------------------------------------------------------------------------


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[^a-z]+", name.lower()) if word]


def _is_plain(name: str) -> bool:
    """Whether a folder's name says nothing of what its photos show: `images`, `part_2`, `test_images`."""
    words = _words(name)
    return bool(words) and all(map(_PLAIN.fullmatch, words))


def _split_of(name: str) -> str:
    """The split that a folder's name says, "" for none: `train`, `Valid`, `test_images`, `val2017`."""
    return next((SPLIT_WORDS[word] for word in _words(name) if word in SPLIT_WORDS), "") if _is_plain(name) else ""


class _Folders:
    """The folders that images lie in, without those that only say a split or hold all the others."""

    def __init__(self, root: DataPlace, images: Sequence[FileEntry]) -> None:
        self.root, self.images = root, images
        self.parts = [tuple(entry.relative.split("/")[:-1]) for entry in images]
        self.splits: list[str] | None = None
        self.taken_off: list[str] = []
        level = 0
        while level < max(map(len, self.parts), default=0):
            level += 0 if self._take_off(level) else 1
        firsts = {parts[0] for parts in self.parts if parts}
        self.named = not all(map(_is_plain, firsts))
        """Whether a folder is left that may be a class; with `has_classes`, several."""
        self.has_classes = self.named and len(firsts) > 1

    def _take_off(self, level: int) -> bool:
        """Take off a level of folders that are no classes: all named after splits, all plain names, or one that holds all."""
        there = [parts for parts in self.parts if len(parts) > level]
        splits = {name: _split_of(name) for name in {parts[level] for parts in there}}
        with_folders = {parts[level] for parts in there if len(parts) > level + 1}
        deeper = {name: name in with_folders for name in splits}
        above = level > 0 or any(deeper[name] for name, split in splits.items() if split == "train")
        if self.splits is None and all(splits.values()) and "train" in splits.values() and len(splits) > 1 and above:
            self.splits = [splits[parts[level]] if len(parts) > level else "" for parts in self.parts]
        elif not all(map(_is_plain, splits)) or (level == 0 and not all(deeper.values())):
            wraps = level == 0 and len(splits) == 1 and len(there) == len(self.parts) and all(deeper.values())
            if not wraps:
                return False
        self.taken_off.append(", ".join(sorted(splits)[:4]))
        self.parts = [parts[:level] + parts[level + 1 :] for parts in self.parts]
        return True

    def labels(self, level: int | None) -> list[str]:
        """The name of the folder at a level, counted from 1; of all levels joined for None."""
        if level is None:
            return ["/".join(parts) for parts in self.parts]
        return [parts[level - 1] if len(parts) >= level else "" for parts in self.parts]

    def read(self, label: str) -> Reading:
        """The reading that `--label` asks for."""
        if label == BY_NAME:
            labels, how = [_name_label(entry.relative) for entry in self.images], "file names without their numbers"
            splits = {parts[0] if parts else "": _split_of(parts[0]) if parts else "" for parts in self.parts}
            if all(splits.values()) and "train" in splits.values() and len(set(splits.values())) > 1:
                self.splits = [splits[parts[0]] for parts in self.parts]
        else:
            level = _LEVEL.fullmatch(label)
            number = int(level[1]) if level is not None and level[1] else None
            labels, how = self.labels(number), "folder names" if number in (1, None) else f"names of folders at level {number}"
        below = f" below {' and '.join(self.taken_off)}" if self.taken_off else ""
        reason = f"{self.root.name} holds {format_count(len(set(labels) - {''}), 'class folder')}{below}"
        if label == BY_NAME:
            reason = f"--label name: {_counts(labels)}"
        inside = [
            "/".join((*parts, entry.relative.rpartition("/")[2])) for parts, entry in zip(self.parts, self.images, strict=True)
        ]
        return Reading(how, reason, labels, self.splits, inside, at_root=label == "path:1" and not self.taken_off)

    def decide(self) -> Reading:
        """Class folders, unless two levels of them are plausible, or their names are no classes."""
        firsts = {parts[0] for parts in self.parts if parts}
        named = _shell(self.root)
        recordings = [name for name in firsts if re.search(r"\d", name) and any(map(_RECORDINGS.fullmatch, _words(name)))]
        if len(firsts) > 2 and len(recordings) > 0.8 * len(firsts):
            raise UsageError(
                f"the folders of {self.root} are named after recordings, not after classes",
                code="folders-of-recordings",
                why=f"{format_count(len(firsts), 'folder')} such as {min(recordings)!r}: frames of one are alike and say "
                "which recording they are from",
                try_=f"a table with the columns path, label and group; or unchoke fit {named} --label path:1",
            )
        self._refuse_more_than_splits(firsts)
        plain = sorted(name for name in firsts if _is_plain(name))
        if plain and len(firsts) - len(plain) > 1:
            pairs = zip(self.parts, self.images, strict=True)
            where = dict.fromkeys(one.relative.rpartition("/")[0] for parts, one in pairs if parts and parts[0] in plain)
            without = " ".join(f"--exclude {shlex.quote(f'{folder}/*')}" for folder in list(where)[:4])
            rest = _counts(label for label in self.labels(1) if label not in plain)
            readings = [
                (f"unchoke fit {named} {without}", rest),
                (f"unchoke fit {named} --label path:1", _counts(self.labels(1))),
            ]
            raise _several(self.root, readings, f"a folder called {', '.join(plain)} lies among its class folders")
        deep = [parts for parts in self.parts if len(parts) > 1]
        if len(firsts) > 1 and len(deep) > _DEEP * len(self.parts) and not self._are_groups(deep):
            depth = min(3, max(map(len, deep)))
            levels = [(f"path:{level}", self.labels(level)) for level in range(1, depth + 1)]
            readings = [
                (f"unchoke fit {named} --label {how}", _counts(labels)) for how, labels in (*levels, ("path", self.labels(None)))
            ]
            why = f"its {format_count(len(firsts), 'folder')} hold folders, and either may be the classes"
            raise _several(self.root, readings, why)
        return self.read("path:1")

    def _refuse_more_than_splits(self, firsts: Iterable[str]) -> None:
        """Folders of splits with another one beside them: the splits are offered without it."""
        more = [name for name in sorted(firsts) if not _split_of(name)]
        beside = {
            entry.relative: name
            for parts, entry in zip(self.parts, self.images, strict=True)
            for name in more
            if parts[:1] == (name,)
        }
        rest = _Folders(self.root, [entry for entry in self.images if entry.relative not in beside])
        if self.splits is not None or rest.splits is None or not rest.named or len(more) > 4:
            return
        folders = dict.fromkeys(f"{one[: f'/{one}'.index(f'/{name}/')]}{name}/*" for one, name in beside.items())
        without = " ".join(f"--exclude {shlex.quote(folder)}" for folder in folders)
        readings = [
            (f"unchoke fit {_shell(self.root)} {without}", f"{_counts(rest.labels(1))}; splits from the folders"),
            (f"unchoke fit {_shell(self.root)} --label path:1", _counts(self.labels(1))),
        ]
        raise _several(self.root, readings, f"{', '.join(map(repr, more))} beside folders named after splits")

    def _are_groups(self, deep: Sequence[tuple[str, ...]]) -> bool:
        """Whether the second folders are patients, plants or recordings: many, each with a number and in one class alone."""
        pairs = {parts[:2] for parts in deep}
        seconds = Counter(second for _, second in pairs)
        numbered = sum(bool(re.search(r"\d", second)) for _, second in pairs)
        return numbered > 0.8 * len(pairs) and max(seconds.values()) < max(2, len({first for first, _ in pairs}))


def _name_label(relative: str) -> str:
    """``cat`` of ``cat.12.jpg``, ``yellow_iris`` of ``yellow_iris_0042.jpg``: the name before its number or code."""
    stem = stem_of(relative.rpartition("/")[2])
    return re.sub(r"[\W_]*([0-9a-f]*\d[0-9a-f]*|\(\d+\))$", "", stem)


def labels_by_name(images: Sequence[FileEntry]) -> str:
    """The classes that file names seem to say, in words; "" where they say none."""
    labels = [label for entry in images if (label := _name_label(entry.relative))]
    return _counts(labels) if 1 < len(set(labels)) <= len(labels) / 3 and len(labels) > len(images) / 2 else ""


# -- tables ----------------------------------------------------------------------------------------------------------------------


def _find_table(source: DataSource, found: FolderFiles, named: Sequence[str]) -> Reading | None:
    """The table in the folder that says what its photos are; refused where several could."""
    import pandas as pd

    root, names = source.data, [name for name in found.others if suffix_of(name) in TABLE_SUFFIXES]
    metadata = [name for name in names if PurePosixPath(name).stem == "metadata"]
    if metadata and (joined := _join(source, metadata)) is not None:
        return joined
    if not found.images and (parquet := [name for name in names if suffix_of(name) in PARQUET_SUFFIXES]):
        return _join(source, parquet)
    usable: list[tuple[str, str, pd.DataFrame]] = []
    matcher = FileMatcher(found.images)
    for name in [name for name in names if name.count("/") <= 1 and suffix_of(name) != ".json"][:_MOST_TABLES]:
        table = _try_table(source, root / name)
        if table is None or "submission" in name.lower():
            continue
        table = with_header(table, matcher)
        if not set(named) <= set(table.columns):
            continue
        key, share = _key_of(table, matcher)
        if share >= 0.5 and set(table.columns) - {key, *source.inputs}:
            usable.append((name, key, table))
    split_of = {_split_of(PurePosixPath(name).stem): place for place, (name, *_) in enumerate(usable)}
    if len(split_of) == len(usable) > 1 and "train" in split_of and "" not in split_of:  # train.csv, val.csv, test.csv
        name, key, train = usable[split_of["train"]]
        columns = set(train.columns)
        same = {split: usable[place][2] for split, place in split_of.items() if set(usable[place][2].columns) == columns}
        if len(same) > 1:
            attrs, parts = train.attrs, [one.assign(split=split) for split, one in same.items()]
            train = pd.concat(parts, ignore_index=True)
            train.attrs = attrs
        reading = _table_reading(source, found, name, key, train, matcher)
        return reading if len(same) == 1 else replace(reading, value=f"{len(same)} tables", split="split")
    labelled = [one for one in usable if named or known_columns(one[2], LABEL_NAMES)] or usable
    if len(labelled) > 1:
        options = [
            (
                f"unchoke fit {_shell(root / name)} --images {_shell(root)}",
                f"{len(table):,} rows of {', '.join(table.columns[:6])}",
            )
            for name, _, table in labelled
        ]
        raise _several(root, options, "several tables in it name its photos")
    return _table_reading(source, found, *labelled[0], matcher) if labelled else None


def _try_table(source: DataSource, place: DataPlace) -> pd.DataFrame | None:
    """A table, where the file is one: a text file or an object of settings is none."""
    try:
        table = read_table(place, unpack_to=source.unpack_to)
    except (UnchokeError, OSError):  # what is wrong with it is said when it is named as DATA
        return None
    return table if len(table) and len(table.columns) > 1 else None


def _key_of(table: pd.DataFrame, matcher: FileMatcher) -> tuple[str, float]:
    """The column that names most images, and the share of its cells that do."""
    probe = table.iloc[:: max(1, len(table) // _TABLE_ROWS)]
    shares = {str(name): matcher.share_found([str(cell) for cell in probe[name].drop_duplicates()]) for name in table.columns}
    usual = {name: shares[name] for name in known_columns(table, PATH_NAMES + ID_NAMES) if shares[name] >= 0.5}
    best = max(usual or shares, key=lambda name: shares[name])
    return best, shares[best]


def _table_reading(
    source: DataSource, found: FolderFiles, name: str, key: str, table: pd.DataFrame, matcher: FileMatcher
) -> Reading:
    """The table with the folders that its rows lead to; the others hold what is to be predicted."""
    root = source.data
    used: Counter[str] = Counter()
    hits = [matcher.find(str(cell)) for cell in table[key].drop_duplicates()]
    for place in (hits[0] for hits in hits if hits):
        used[found.images[place].relative.rpartition("/")[0]] += 1
    sizes = Counter(entry.relative.rpartition("/")[0] for entry in found.images)
    idle = {
        folder: count
        for folder, count in sizes.items()
        if folder and not used[folder] and _split_of(folder.split("/")[0]) == "test"
    }
    asked: tuple[str, ...] = ()
    for sample in (one for one in found.others if "submission" in one.lower() and suffix_of(one) in TABLE_SUFFIXES):
        wanted = _try_table(source, root / sample)
        asked = (
            () if wanted is None else tuple(str(column) for column in wanted.columns if column in table.columns and column != key)
        )
    tops = sorted({folder.split("/")[0] for folder in used})
    where = "" if "" in tops else f" and the photos in {', '.join(tops[:4])}"
    reason = f"{name} names {sum(used.values()):,} of {format_count(len(found.images), 'photo')} in its column {key!r}"
    images = (root,) if "" in tops or not idle else tuple(root / folder for folder in tops)
    return Reading(
        f"{name}{where}", reason, table=table, table_file=root / name, key=key, images=images, to_predict=idle, asked=asked
    )


def _join(source: DataSource, names: Sequence[str]) -> Reading | None:
    """Tables of one kind at several places as one: `metadata.csv` beside the files it names, or Parquet files with pictures."""
    import pandas as pd

    root, frames, images, key, encoding = source.data, [], list[DataPlace](), "", ""
    for name in names:
        table, folder = _try_table(source, root / name), PurePosixPath(name).parent
        if table is None:
            continue
        where = next((_split_of(part) for part in (PurePosixPath(name).stem, *folder.parts) if _split_of(part)), "")
        where = where or next((SPLIT_WORDS[word] for word in _words(PurePosixPath(name).stem)[:1] if word in SPLIT_WORDS), "")
        if PICTURES in table.attrs:
            key, place = table.attrs[PICTURES]
            images.append(place)
            table = table.assign(**{key: [f"{place.name}/{cell}" for cell in table[key]]})
        else:
            columns = [column for column in table.columns if column == "file_name" or column.endswith("_file_name")]
            if not columns:
                continue
            key = columns[0]
            prefix = "" if str(folder) == "." else f"{folder}/"
            table = table.assign(**{key: [prefix + cell.removeprefix("./") for cell in table[key]]})
        encoding = table.attrs.get("encoding", encoding)
        frames.append(table if not where or "split" in table.columns else table.assign(split=where))
    if not frames:
        return None
    joined = pd.concat(frames, ignore_index=True).fillna("")
    joined.attrs = {"encoding": encoding} if encoding else {}
    what = "with pictures inside" if images else f"that names photos in its column {key!r}"
    reason = f"{names[0]}{f' and {len(frames) - 1} more' if len(frames) > 1 else ''}, {what}: {format_count(len(joined), 'row')}"
    value = names[0] if len(frames) == 1 else f"{len(frames)} tables"
    split = "split" if any("split" in table.columns for table in frames) else None
    places = tuple(images) or (root,)
    return Reading(value, reason, table=joined, table_file=root / names[0], key=key, split=split, images=places)


def _says_the_same(table: Reading, folders: _Folders) -> bool:
    """Whether a column of the table holds the names of the class folders."""
    assert table.table is not None
    firsts = {parts[0] for parts in folders.parts if parts}
    same = [column for column in table.table.columns if firsts <= {str(cell).strip() for cell in table.table[column]}]
    return bool(same)


# -- masks and scenes ------------------------------------------------------------------------------------------------------------


def _find_masks(root: DataPlace, found: FolderFiles, folders: _Folders) -> list[tuple[str, str]]:
    """Photos with masks, which are not photos of two classes: the command to train on them, and what was seen."""
    by_name = {entry.relative: entry for entry in found.images}
    lossless = [name for name in by_name if suffix_of(name) in _LOSSLESS or _is_mask_folder(name)]
    if not lossless:
        return []
    marked = [name for name in lossless if _base(name, _MASK_ENDINGS) != stem_of(name)]
    stems = {_base(name, _PHOTO_ENDINGS) for name in by_name.keys() - marked} if marked else set()
    beside = [name for name in marked if _base(name, _MASK_ENDINGS) in stems]
    if len(beside) > 0.3 * len(by_name) and _are_masks(by_name[name] for name in beside[:_LOOKED_AT]):
        name = stem_of(PurePosixPath(beside[0]).name)
        ending = max((one for one in _MASK_ENDINGS if one in name.lower()), key=lambda one: (name.lower().rfind(one), len(one)))
        at = name.lower().rfind(ending)
        pattern = f"*{name[at - 1 : at].strip()}{name[at : at + len(ending)]}*"
        seen = f"{format_count(len(beside), 'mask')} beside the photos, such as {beside[0]!r}"
        plain = {stem_of(one) for one in by_name.keys() - marked}
        direct = all(_MASK_NAME.search(stem_of(one)) and _MASK_NAME.sub("", stem_of(one)) in plain for one in marked)
        command = f"unchoke segment train {_shell(root)} --label {_shell(root)}"
        apart = "unchoke segment train PHOTOS --label MASKS, once the masks lie in a folder of their own"
        readings = [(command if direct else apart, seen)]
        if folders.has_classes:
            labels = zip(folders.images, folders.labels(1), strict=True)
            classes = _counts(label for entry, label in labels if not fits(pattern, entry.relative))
            readings.append((f"unchoke fit {_shell(root)} --exclude {_shell(pattern)}", classes))
        return readings
    for divide in (_at_first, _at_second, _at_last):  # images/train/1.jpg and masks/train/1.png; train/images/1.jpg; any folders
        held = Counter(divide(name)[0] for name in lossless)
        tops = Counter(divide(name)[0] for name in by_name) if len(held) <= _MOST_FOLDERS else held
        could = [folder for folder, count in held.items() if folder and count == tops[folder]]
        if not could or not 1 < len(tops) <= _MOST_FOLDERS:
            continue
        keyed: dict[str, dict[str, str]] = defaultdict(dict)
        for name in by_name:
            folder, rest = divide(name)
            keyed[folder][_base(rest)] = name
        for masks in sorted(could, key=lambda name: (not name.lower().endswith(_MASK_ENDINGS), name)):
            partners = [one for one in keyed if one != masks and len(keyed[masks].keys() & keyed[one]) >= 0.8 * len(keyed[masks])]
            some = sorted(keyed[masks])[:_LOOKED_AT]
            if not partners or not _are_masks(by_name[keyed[masks][one]] for one in some):
                continue
            for photos in partners:
                own = [keyed[photos][one] for one in some if one in keyed[photos]]
                if own and not any(_num_values(by_name[name]) <= _MASK_VALUES for name in own):
                    above = [*own[0].split("/")[:1]] if divide is _at_second else []
                    places = [_shell("/".join((str(root), *above, folder))) for folder in (photos, masks)]
                    seen = f"photos in {photos} and {len(keyed[masks]):,} masks of the same names, with few values, in {masks}"
                    return [(f"unchoke segment train {places[0]} --label {places[1]}", seen)]
    return []


def _is_mask_folder(name: str) -> bool:
    return any(word in _MASK_ENDINGS for folder in name.split("/")[:-1] for word in _words(folder))


def _at_first(name: str) -> tuple[str, str]:
    """The folder that divides photos from masks, and what is left of the path."""
    folder, _, rest = name.partition("/")
    return (folder, rest) if rest else ("", name)


def _at_second(name: str) -> tuple[str, str]:
    parts = name.split("/", 2)
    return (parts[1], f"{parts[0]}/{parts[2]}") if len(parts) > 2 else ("", name)


def _at_last(name: str) -> tuple[str, str]:
    folder, _, rest = name.rpartition("/")
    return folder, rest


def _base(name: str, endings: tuple[str, ...] = ()) -> str:
    """The path without its ending and what marks a mask (or a photo): ``train/7`` of ``train/7_mask.png``."""
    stem = stem_of(name)
    short = stem.rstrip("0123456789 _-")
    endings = endings or _MASK_ENDINGS + _PHOTO_ENDINGS
    if not short.lower().endswith(endings):
        return stem
    ending = max((one for one in endings if short.lower().endswith(one)), key=len)
    return stem[: len(short) - len(ending)].rstrip(" _-.") + stem[len(short) :].strip(" _-")


def _are_masks(entries: Iterable[FileEntry]) -> bool:
    """Whether files hold few values: numbers of classes, a palette, or a handful of colours."""
    return all(_num_values(entry) <= _MASK_VALUES for entry in entries)


def _num_values(entry: FileEntry) -> int:
    """How many values, or colours, a file has; more than any mask where it cannot be told."""
    lossy = suffix_of(entry.path) in (".jpg", ".jpeg", ".webp")
    if lossy and not _is_mask_folder(entry.relative):
        return _MASK_VALUES + 1
    try:
        with open_pillow(read_bytes(entry.path)) as image:
            pixels = np.asarray(image)
    except (DecodeError, OSError, ValueError):
        return _MASK_VALUES + 1
    if lossy:  # black and white, but for what packing did to their edges
        return 2 if float((np.minimum(pixels, 255 - pixels) > _NEAR).mean()) < 0.02 else _MASK_VALUES + 1
    flat = pixels.reshape(-1, pixels.shape[2])[:, :3] if pixels.ndim == 3 else pixels.reshape(-1, 1)
    packed = flat.astype(np.int64) @ (256 ** np.arange(flat.shape[1]))
    return len(np.unique(packed[:: max(1, len(packed) // 200_000)]))


def _refuse_scenes(root: DataPlace, found: FolderFiles) -> None:
    """Rasters with many bands, or a file for each band, are scenes."""
    rasters = [entry for entry in found.images if suffix_of(entry.relative) in (".tif", ".tiff", ".jp2")]
    if len(rasters) < 0.9 * len(found.images):
        return
    banded = sum(bool(re.search(r"(^|[_-])B\d{1,2}A?$", stem_of(entry.relative), re.IGNORECASE)) for entry in rasters)
    if banded < 0.8 * len(rasters) and any(map(_opens, rasters[:3])):
        return
    raise UsageError(
        f"{root} looks like scenes, not like photos",
        code="scenes-not-photos",
        why="a file for each band" if banded else "rasters with more bands, or other numbers, than a photo has",
        try_=f"unchoke tile {_shell(root)}, or unchoke segment train {_shell(root)} --label MASKS",
    )


def _opens(entry: FileEntry) -> bool:
    try:
        with open_pillow(read_bytes(entry.path)) as image:
            return image.mode not in ("F", "I")
    except (DecodeError, OSError):
        return False


def is_text_table(name: str) -> bool:
    """Whether a file is called like a table that may lie beside photos."""
    return suffix_of(name) in TABLE_SUFFIXES and suffix_of(name) not in (CSV_SUFFIXES[2], ".json")
