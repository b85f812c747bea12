"""Switches that must earn their place on this machine, and commonly reported gains measured on it.

In come a training or an extraction as work that can be done in several ways; out come verdicts. `switches.py` lists what can be
tried, `compare.py` times two ways and compares their numbers, `tune_trials.py` runs one round, `claims/` measures reported gains.
"""
