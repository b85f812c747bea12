"""The trainable part: heads on cached features, trained many at a time, scored, calibrated and saved.

`data` says what comes in, `loop.train_heads` trains, `trained.TrainedHead` predicts, `metrics.score` judges,
`checkpoints` keeps. Nothing here reads images or knows how the features were made.
"""
