"""What the how-tos speak of, small: `photos/` in class folders, one under a wrong label, and `new_photos/` without labels."""

from __future__ import annotations

from pathlib import Path
from shutil import copy

from unchoke.cli.demo import write_photos


def main() -> None:
    write_photos(Path("groceries"))
    for label in ("Anjou", "Orange", "Watermelon"):
        files = sorted((Path("groceries") / label).iterdir())
        for folder, chosen in ((Path("photos") / label, files[:20]), (Path("new_photos"), files[20:22])):
            folder.mkdir(parents=True, exist_ok=True)
            for file in chosen:
                copy(file, folder)
    copy(files[22], Path("photos", "Orange", "melons.jpg"))


if __name__ == "__main__":
    main()
