"""Patches to full-size masks: the frozen pyramid, the decoder that trains on it, and stitching."""
