"""What was tried and what came out: one SQLite file of runs, settings, metrics, timings, memory, artefacts and choices."""
