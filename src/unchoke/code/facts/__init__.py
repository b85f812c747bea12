"""What a program does, a subject in each file: what runs for each sample, which loops train, where values come from.

In comes a `Program` or a part of it; out come small records of nodes. `vocabulary.py` holds the words by which calls are known.
Nothing is judged here: rules do that.
"""
