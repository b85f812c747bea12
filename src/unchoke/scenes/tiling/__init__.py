"""Scenes to training tiles: windows planned, read in strips, written, split."""
