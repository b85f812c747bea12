"""How good predictions are: figures with intervals, calibration, and what is picked by."""
