"""One file for each command that joins rooms: `fit.py`, `evaluate.py`, `tile.py`, `segment_train.py`, `tune.py` and others.

In come a command's arguments; out comes its result, a plain value (those of `fit`, `train` and `extract` are in `results.py`).
Progress is told as events. A command that needs one room alone, such as `lint`, is in that room. Nothing is printed here.
"""
