"""Switches that must earn their place on this machine, and commonly reported gains measured on it."""
