"""Scores for maintenance tickets: words to numbers, then a traced or a plain network."""

import argparse
import json
import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

HERE = Path("tickets")
VOCABULARY = HERE / "vocabulary.pkl"


class Bag(nn.Module):
    def __init__(self, words, classes):
        super().__init__()
        self.embed = nn.EmbeddingBag(words, 64)
        self.out = nn.Linear(64, classes)

    def forward(self, ids, offsets):
        return self.out(self.embed(ids, offsets))


def count_words(texts):
    counts = Counter(word for text in texts for word in text.lower().split())
    with VOCABULARY.open("wb") as f:
        pickle.dump({word: i for i, (word, _) in enumerate(counts.most_common(20_000))}, f)


def vocabulary(texts):
    """Counted by this program on its first run and kept beside the tickets."""
    if not VOCABULARY.exists():
        count_words(texts)
    with VOCABULARY.open("rb") as f:
        return pickle.load(f)


def load_network(path, words, classes, device):
    if path.suffix == ".ts":
        return torch.jit.load(str(path), map_location=device).eval()
    model = Bag(words, classes)
    if path.suffix == ".safetensors":
        model.load_state_dict(load_file(path))
    else:
        model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return model.to(device).eval()


def bags(texts, numbers):
    ids = [[numbers[w] for w in text.lower().split() if w in numbers] for text in texts]
    offsets = np.cumsum([0] + [len(bag) for bag in ids[:-1]])
    return torch.tensor(sum(ids, []), dtype=torch.long), torch.from_numpy(offsets)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("weights", type=Path)
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    texts = json.loads((HERE / "tickets.json").read_text())
    prior = torch.from_numpy(np.load(HERE / "class_prior.npy")).float().to(device)
    numbers = vocabulary(texts)
    model = load_network(args.weights, len(numbers), len(prior), device)
    ids, offsets = bags(texts, numbers)
    with torch.inference_mode():
        scores = (model(ids.to(device), offsets.to(device)).log_softmax(1) + prior.log()).cpu()
    np.save(HERE / "scores.npy", scores.numpy())


if __name__ == "__main__":
    main()
