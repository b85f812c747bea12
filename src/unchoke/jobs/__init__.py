"""Resumable micro-jobs over opaque items. Nothing here knows what an item is, and nothing here loads torch or numpy.

`plan` says what there is to do, `queue` remembers it, `run` does it, and `engines` run plain functions.
"""
