"""Photos: which samples exist, whether they are sound, their splits, and bytes to pixels."""
