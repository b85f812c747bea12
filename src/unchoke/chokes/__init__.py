"""Choke points in code that runs: watched from inside, diagnosed, and remedies tried."""
