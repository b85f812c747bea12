"""Heads on cached features: trained many at a time, in stacks."""
