"""A table parsed again for each sample.

`pd.read_csv`, `json.load` and the like read and parse a whole file. In `__getitem__` the table of all samples is parsed once for
each sample in each epoch, to take one row of it: the work grows with the square of the number of samples.

**Write instead.** Parse once, when the data set is made, and look the row up:

    self.table = pd.read_csv(path).set_index("id")     # in __init__
    row = self.table.loc[self.ids[index]]              # in __getitem__

**When this is fine.** A small file that belongs to this one sample (`f"{name}.json"`, an XML of its boxes) is part of the sample.
A generator that parses before its loop does so once an epoch. A table that is kept (`if self.table is None`) is parsed once for
each worker. A table of pandas or polars in a data set's class has a row for each sample and is a choke; of other files, and
elsewhere, the size is not known, and it is a nit.
"""

from __future__ import annotations

from collections.abc import Iterator

from unchoke.code.facts.origins import is_of_sample
from unchoke.code.facts.vocabulary import TABLE_PARSERS
from unchoke.code.program import Program
from unchoke.linting.questions import is_done_anew, opened_path
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    group="input",
    stage="parse",
    title="table parsed again for each sample",
    gain="2.8 s to 0.5 s with a table of 4,000 rows",
    claim="Planted chokes",
)
_MORE = frozenset(
    {"pandas.read_hdf", "pandas.read_orc", "pandas.read_fwf", "pyarrow.parquet.read_table", "pyarrow.csv.read_csv", "ujson.load",
     "ujson.loads", "orjson.loads", "simplejson.load", "simplejson.loads", "xml.dom.minidom.parse", "xmltodict.parse",
     "pycocotools.coco.COCO", "openpyxl.load_workbook", "polars.read_json", "polars.read_excel", "polars.read_ndjson",
     "defusedxml.ElementTree.parse", "toml.load", "tomllib.load", "xml.etree.cElementTree.parse", "lxml.objectify.parse"}
)  # fmt: skip
_FILES = ("filepath_or_buffer", "io", "path_or_buf", "path", "fp", "source", "fname", "stream", "csvfile", "annotation_file")


def check(program: Program) -> Iterator[Hit]:
    for call in program.calls_named(TABLE_PARSERS | _MORE):
        source = next(filter(None, (*call.args[:1], *(program.argument(call, name) for name in _FILES))), None)
        if source is None or is_of_sample(program, source) or not is_done_anew(program, call, by_sample=False):
            continue
        name, text, owner = program.text(call.func), program.text(opened_path(program, source)), program.enclosing_class(call)
        what = f"`{text}`" if len(text) <= 60 else "the whole table"
        where = f"in `{owner.name}.__init__`" if owner is not None else "once, outside this function"
        yield Hit(
            call,
            f"`{name}` parses {what} again for every sample",
            evidence={"call": name, "file": what},
            fix=f"parse {what} {where} and only look the row up here",
            kind=None if owner is not None and program.name(call).startswith(("pandas.", "polars.")) else "nit",
        )
