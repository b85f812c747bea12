"""Python programs and notebooks, read and never run: cells, names, values, and facts about what they do."""
