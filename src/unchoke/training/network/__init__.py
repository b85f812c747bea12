"""Training through a network: its blocks from a cut on, or all of it."""
