"""network-mount beyond its specimens."""

from __future__ import annotations

from tests.linted import OneRule, each

TRAINS = "\nmodel.fit(data, epochs=3)\n"
RULE = OneRule("network-mount", "import os, glob, cv2, shutil\n")


@each(
    "body",
    [
        "ROOT = '/content/drive/MyDrive/photos'",
        "paths = glob.glob('/content/drive/My Drive/photos/*/*.jpg')",
        "files = os.listdir('/content/gdrive/MyDrive/photos/')",
        "TRAIN = 'drive/MyDrive/data/train'",
    ],
)
def test_folders_of_pictures_on_the_drive_are_found_once(body: str) -> None:
    assert RULE.lines(body + "\nother = '/content/drive/MyDrive/photos/val'" + TRAINS) == [2]


@each(
    "body",
    [
        "stack = cv2.imread('/content/drive/MyDrive/large.tif')",
        "model.save('/content/drive/MyDrive/models/net')",
        "checkpoints = '/content/drive/MyDrive/run'",
        "shutil.copytree('/content/drive/MyDrive/photos', '/content/photos')",
        "os.chdir('/content/drive/MyDrive/project')",
        "ROOT = '/content/photos'",
        "import pandas as pd\ntable = pd.read_csv('/content/drive/MyDrive/table.csv')",
    ],
)
def test_single_files_results_and_copies_are_not(body: str) -> None:
    assert RULE.lines(body + TRAINS) == []


def test_without_training_nothing_is_said() -> None:
    assert RULE.lines("ROOT = '/content/drive/MyDrive/photos'") == []
