"""Notebooks and scripts as syntax trees, and the facts that rules ask for."""
