"""model-in-dataset beyond its specimens."""

from __future__ import annotations

from tests.linted import OneRule, each

HEAD = """import timm, torch
import tensorflow as tf
from torch import nn
from torch.utils.data import Dataset, DataLoader
from transformers import AutoModel, AutoTokenizer
class Net(nn.Module):
    def forward(self, x):
        return x
net = Net()
vit = timm.create_model("vit_small_patch16_224")
tokenizer = AutoTokenizer.from_pretrained("bert")
augment = tf.keras.Sequential([tf.keras.layers.RandomFlip()])
vgg = tf.keras.applications.VGG16(include_top=False)
"""
RULE = OneRule("model-in-dataset", HEAD)
ITEM = """class D(Dataset):
    def __init__(self):
        self.enc = AutoModel.from_pretrained("x")
    def __getitem__(self, i):
"""


@each(
    "body",
    [
        ITEM + "        return vit(self.x[i][None])[0]",
        ITEM + "        return self.enc(self.x[i])",
        ITEM + "        return net(self.x[i])",
        "def collate(batch):\n    return vit(torch.stack(batch))\nDataLoader(d, collate_fn=collate)",
        "def prepare(x, y):\n    return vgg(x), y\nds = tf.data.Dataset.from_tensor_slices(a).map(prepare)",
    ],
)
def test_a_network_that_runs_where_data_are_loaded_is_found(body: str) -> None:
    assert len(RULE.lines(body)) == 1


@each(
    "body",
    [
        ITEM + "        return tokenizer(self.x[i])",
        ITEM + "        return self.encoder(self.label[i])",
        "def prepare(x, y):\n    return augment(x), y\nds = tf.data.Dataset.from_tensor_slices(a).map(prepare)",
        "for x in loader:\n    out.append(vit(x))",
        ITEM + "        if i not in self.cache:\n            self.cache[i] = vit(self.x[i][None])\n        return self.cache[i]",
    ],
)
def test_tokenizers_augmentation_and_kept_are_not_found(body: str) -> None:
    assert RULE.lines(body) == []
