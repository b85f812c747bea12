"""Heads on cached features: many configurations trained at once, in stacks, and the best kept.

In come features and a problem; out comes a `TrainedHead`. `train_heads.py` is the loop over epochs, `stack.py` trains heads of
one shape as one, `head_trainer.py` is the `Trainer` of a run. No image is read here.
"""
