"""How good predictions are: metrics with intervals, calibration, and the metric that picks the best epoch.

In come outputs and targets; out come plain numbers. `figures.py` computes, `bootstrap.py` gives intervals, `scores.py` joins
them, `selection.py` judges during training, `judge.py` judges a finished training. Nothing here predicts.
"""
