"""table-scan beyond its specimens."""

from __future__ import annotations

from tests.linted import OneRule, each

HEAD = """import pandas as pd
from torch.utils.data import Dataset
boxes = pd.read_csv("boxes.csv")
class D(Dataset):
    def __init__(self, df):
        self.df, self.ids = df, df.id.unique()
    def __getitem__(self, i):
        name = self.ids[i]
"""
RULE = OneRule("table-scan", HEAD)


@each(
    "body",
    [
        "        return self.df[self.df['id'] == name].values",
        "        return self.df.loc[self.df.id == name, 'label'].item()",
        "        return boxes[boxes['id'] == name]",
        "        return self.df.query(f'id == {name}')",
        "        return self.df[(self.df.day <= self.day[i]) & (self.df.day > 3)]",
    ],
)
def test_a_search_through_all_rows_is_found(body: str) -> None:
    assert RULE.lines(body) == [9]


@each(
    "body",
    [
        "        return load(self.df.iloc[i].path)",
        "        return self.df.loc[name]",
        "        return self.groups[name]",
        "        return self.x[self.x > 0]",
        "        return self.df[self.df['split'] == 'train']",
        "    def summary(self):\n        return self.df[self.df['id'] == self.wanted]",
    ],
)
def test_lookups_and_what_is_the_same_for_all_are_not(body: str) -> None:
    assert RULE.lines(body) == []


def test_a_range_is_sorted_and_a_name_is_grouped() -> None:
    (of_range,) = RULE.found(RULE.whole("        return self.df[self.df.day <= self.day[i]]"))
    (of_name,) = RULE.found(RULE.whole("        return self.df[self.df.id == name]"))
    assert "searchsorted" in of_range.finding.fix
    assert "groupby" in of_name.finding.fix
