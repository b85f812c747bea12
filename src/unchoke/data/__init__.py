"""Photos: which samples exist, whether they are sound, which split each is in, and their pixels.

In comes DATA as the user describes it; out come samples with splits and findings. `samples/` scans folders and tables,
`check_samples.py` is `unchoke check`, `splits.py` assigns splits and `manifest.py` keeps them, `pixels/` decodes and resizes.
Nothing is written inside the data.
"""
