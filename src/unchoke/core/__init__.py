"""What every room stands on: errors, settings, units, whole files, digests, clocks, events, the workspace."""
