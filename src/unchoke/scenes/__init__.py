"""Scenes to windows: scale, masks, tiles, spatial blocks. One scene is several bands on one grid."""
