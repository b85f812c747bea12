"""What combines stages: the only layer that does. One function for each command, without printing."""
