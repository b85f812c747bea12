"""How good predictions are: figures with intervals, calibration, and the metric that picks the best epoch.

In come outputs and targets; out come plain numbers. `figures.py` computes, `intervals.py` gives intervals, `scores.py` joins
them, `selection.py` steers a training, `judge.py` judges a finished one. Nothing here predicts.
"""
