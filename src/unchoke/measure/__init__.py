"""Where time and memory go: plain recorders, handed the work as callables or contexts."""
