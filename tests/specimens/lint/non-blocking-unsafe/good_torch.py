"""Leaf disease probabilities for every stored chip, with copies that overlap the forward passes."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Lesions(nn.Module):
    def __init__(self, classes=9):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 64, 7, stride=4), nn.ReLU(), nn.Conv2d(64, 128, 3, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, classes),
        )

    def forward(self, x):
        return self.net(x)


def to_device(batch, device):
    return batch.to(device, non_blocking=True).float().div_(255)


@torch.inference_mode()
def predict_all(model, loader, device):
    """Copies are started batch by batch and waited for once, at the end."""
    parts = []
    for (chips,) in loader:
        parts.append(model(to_device(chips, device)).softmax(1).to("cpu", non_blocking=True))
    if device.type == "cuda":
        torch.cuda.synchronize()
    return torch.cat(parts).numpy()


@torch.inference_mode()
def predict_streamed(model, loader, device, out):
    """As above for sets too large for memory: one pinned buffer, one event."""
    buffer = torch.empty(loader.batch_size, 9, pin_memory=True)
    done = torch.cuda.Event()
    start = 0
    for (chips,) in loader:
        n = len(chips)
        buffer[:n].copy_(model(to_device(chips, device)).softmax(1), non_blocking=True)
        done.record()
        done.synchronize()
        out[start : start + n] = buffer[:n].numpy()
        start += n


@torch.inference_mode()
def predict_plain(model, loader, device):
    return np.concatenate([model(to_device(chips, device)).softmax(1).cpu().numpy() for (chips,) in loader])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("chips", help="uint8 array, N x 3 x H x W")
    parser.add_argument("--how", choices=["all", "streamed", "plain"], default="all")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = Lesions()
    model.load_state_dict(torch.load("lesions.pt", map_location="cpu", weights_only=True))
    model.eval().to(device)

    chips = torch.from_numpy(np.load(args.chips))
    loader = DataLoader(TensorDataset(chips), batch_size=256, pin_memory=device.type == "cuda")
    if args.how == "streamed" and device.type == "cuda":
        out = np.lib.format.open_memmap("lesions.npy", "w+", np.float32, (len(chips), 9))
        predict_streamed(model, loader, device, out)
    elif args.how == "plain":
        np.save("lesions.npy", predict_plain(model, loader, device))
    else:
        np.save("lesions.npy", predict_all(model, loader, device))


if __name__ == "__main__":
    main()
