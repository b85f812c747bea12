"""Which maps hand out uneven work in chunks: cases beside the specimens, dashes between them."""

from __future__ import annotations

from tests.linted import OneRule, each

IMPORTS = """
from multiprocessing import Pool
import multiprocessing as mp
import numpy as np, cv2, glob
from concurrent.futures import ProcessPoolExecutor
files = glob.glob("*.tif")
"""

FOUND = """
def f(p):
    return cv2.imread(p).mean()
with Pool(4) as p:
    p.map(f, files)
---
ctx = mp.get_context('spawn')

def f(p):
    return cv2.imread(p)
with ctx.Pool() as p:
    p.map(f, files)
---
from tools import work
pool = Pool()
pool.starmap(work, [(f, 1) for f in files])
---
def f(i):
    return cv2.imread(files[i])
pool = Pool()
pool.map(f, range(len(files)))
---
from functools import partial

def f(p, out):
    cv2.imwrite(out, cv2.imread(p))
Pool(8).map(partial(f, out='o'), files)
"""

SILENT = """
def f(p):
    return cv2.imread(p).mean()
with Pool(4) as p:
    p.map(f, np.array_split(files, 4))
---
def f(x):
    return x * x
with Pool(4) as p:
    p.map(f, range(1000))
---
def f(k):
    return np.load(f'{k}.npy').mean()
with Pool(4) as p:
    p.map(f, range(5))
---
from tools import work
pool = Pool()
pool.map(work, seeds)
"""


RULE = OneRule("uneven-map", IMPORTS)


@each("case", FOUND.split("---\n"))
def test_it_is_found_once(case: str) -> None:
    assert len(RULE.lines(case)) == 1


@each("case", SILENT.split("---\n"))
def test_it_is_left_alone(case: str) -> None:
    assert RULE.lines(case) == []
