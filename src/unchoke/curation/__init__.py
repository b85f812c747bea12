"""What a person should look at in the data: findings over cached features and measured photos, ranked.

In: features, labels, splits and measures of every photo. Out: findings as plain data, with suggested decisions. Decisions
themselves are lines of `corrections.csv`, which `data/corrections.py` reads and writes.
"""
