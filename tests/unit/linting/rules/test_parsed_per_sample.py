"""parsed-per-sample beyond its specimens."""

from __future__ import annotations

from tests.linted import OneRule, each

lines = OneRule("parsed-per-sample").lines


HEAD = """import csv, json
import pandas as pd, xml.etree.ElementTree as ET
from functools import lru_cache
from torch.utils.data import Dataset, IterableDataset
"""


@each(
    ("body", "found"),
    [
        ("return pd.read_csv(self.path).iloc[i]", 1),
        ("return pd.read_csv(self.paths[i])", 0),
        ("return json.load(open('labels.json'))[str(i)]", 1),
        ("return json.loads(open(self.meta).read())[i]", 1),
        ("return json.loads(self.rows[i].boxes)", 0),
        ("name = self.names[i]\n    return ET.parse(name.replace('.jpg', '.xml'))", 0),
        ("return ET.parse(self.annotations).getroot()", 1),
        ("with open(self.table) as f:\n      return list(csv.reader(f))[i]", 1),
        ("with open(f'{i}.csv') as f:\n      return list(csv.reader(f))", 0),
        ("if self.table is None:\n      self.table = pd.read_csv('a.csv')\n    return self.table.loc[i]", 0),
        ("for day in self.days:\n      t = pd.read_csv(day)", 1),
        ("return self.find(self.ids[i])\n  def find(self, key):\n    return pd.read_csv('a.csv').loc[key]", 1),
        ("return self.find(self.ids[i])\n  def find(self, key):\n    return pd.read_csv(f'{key}.csv')", 0),
        ("return table('a.csv').loc[i]\n@lru_cache\ndef table(path):\n  return pd.read_csv(path)", 0),
        ("return table('a.csv').loc[i]\ndef table(path):\n  return pd.read_csv(path)", 1),
    ],
)
def test_a_table_of_all_samples_is_told_from_a_file_of_one(body: str, found: int) -> None:
    assert len(lines(f"{HEAD}class A(Dataset):\n  def __getitem__(self, i):\n    {body}\n")) == found


def test_parse_before_a_generators_loop_is_once_an_epoch() -> None:
    code = f"""{HEAD}
class A(IterableDataset):
    def __iter__(self):
        for row in csv.DictReader(open(self.table)):
            yield json.loads(row["boxes"])
"""
    assert lines(code) == []
