"""As good a model as the minutes allow: one way of training after the other, and the blend of them that answers best."""
