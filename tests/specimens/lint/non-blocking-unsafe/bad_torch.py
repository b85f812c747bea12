"""Write embeddings and cloud scores of all stored image chips to two arrays."""

import argparse

import numpy as np
import torch
import torchvision
from torch.utils.data import DataLoader, Dataset

MEAN = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)


class Chips(Dataset):
    def __init__(self, path):
        self.path = path
        self.length = np.load(path, mmap_mode="r").shape[0]
        self.chips = None

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        if self.chips is None:
            self.chips = np.load(self.path, mmap_mode="r")
        return i, torch.from_numpy(np.array(self.chips[i])).permute(2, 0, 1)


def load_model(device):
    model = torchvision.models.resnet50(weights="IMAGENET1K_V2")
    model.fc = torch.nn.Identity()
    cloud = torch.nn.Linear(2048, 1)
    cloud.load_state_dict(torch.load("cloud_head.pt", map_location="cpu", weights_only=True))
    return model.eval().to(device), cloud.eval().to(device)


@torch.inference_mode()
def embed(loader, device, features, scores):
    model, cloud = load_model(device)
    mean, std = MEAN.to(device), STD.to(device)
    for index, chips in loader:
        x = (chips.to(device, non_blocking=True).float() / 255 - mean) / std
        vectors = model(x)
        host = vectors.to("cpu", non_blocking=True)
        features[index.numpy()] = host.numpy()
        cloudy = torch.sigmoid(cloud(vectors)).squeeze(1).to("cpu", non_blocking=True)
        scores[index.numpy()] = cloudy.numpy()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("chips")
    parser.add_argument("--out", default="embeddings")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    chips = Chips(args.chips)
    loader = DataLoader(chips, batch_size=256, num_workers=8, pin_memory=device.type == "cuda")
    features = np.lib.format.open_memmap(f"{args.out}.npy", "w+", np.float32, (len(chips), 2048))
    scores = np.lib.format.open_memmap(f"{args.out}_cloud.npy", "w+", np.float32, (len(chips),))
    embed(loader, device, features, scores)
    features.flush()
    scores.flush()


if __name__ == "__main__":
    main()
