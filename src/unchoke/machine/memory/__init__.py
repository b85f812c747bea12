"""What fits in memory: is it an out-of-memory error (`oom`), what does a real step take (`probe`), what to choose (`plan`)."""
