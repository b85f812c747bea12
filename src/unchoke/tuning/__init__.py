"""Switches that must earn their place on this machine, and encoders compared on your photos.

In come a training or an extraction as work that can be done in several ways; out come verdicts. `switches.py` lists what can be
tried, `compare.py` times two ways and compares their numbers, `trials.py` decides what is kept.
"""
