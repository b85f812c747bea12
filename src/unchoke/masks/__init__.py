"""From scenes with labels to a segmenter, and from a segmenter to masks of whole scenes.

In come inspected scenes; out come trained weights, scores and mask files. `prepare_patches.py` cuts and splits patches,
`patch_features.py` caches their frozen pyramids, `segmenter.py` is the network and `mask_trainer.py` what `training` needs to
train it; `trained_segmenter.py`, `stitch.py`, `draw_masks.py` and `write_masks.py` make masks. The training loop itself is that
of `training/network`.
"""
