"""Evaluation through an object that cannot be seen: it may well ask for gradients, and does."""

import torch
from _cam_models import Net


def evaluate(model, images):
    model.eval()
    total = 0.0
    for image in images:
        score = model(image)
        total += score.sum().item() + model.generate_cam(0).sum().item()
    return total


torch.manual_seed(0)
print(f"{evaluate(Net(), [torch.randn(1, 1, 8, 8) for _ in range(3)]):.5f}")
