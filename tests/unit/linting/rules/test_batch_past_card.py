"""Batches far past the card that is named: cases beside the specimens."""

from __future__ import annotations

from tests.linted import OneRule, each

from unchoke.code.program import Program
from unchoke.code.source import parse_source
from unchoke.linting.rules.batch_past_card import stated_card

lines = OneRule("batch-past-card").texts


@each(
    ("words", "gigabytes"),
    [
        ("GTX 1650 with 4 GB", 4),
        ("on a T4 (16GB)", 16),
        ("RTX 3050 (4GB) in the laptop", 4),
        ("**RTX 3060** laptop, 6 GB", 6),
        ("my 8GB card", 8),
        ("the GPU has 6 GB", 6),
        ("a GPU with 12GB of memory", 12),
        ("VRAM: 4 GB", 4),
        ("4 GB of VRAM", 4),
        ("GeForce GTX 1060", 6),
        ("32 GB of RAM and a GTX 1650 with 4 GB", 4),
        ("GTX 1650 (4 GB), 16 GB RAM", 4),
        ("Tesla T4", 16),
        ("an RTX 2080 Ti here, a GTX 1650 at home", 11),
        ("RTX 3090 (24 GB)", 24),
        ("16 GB RAM, no GPU", None),
        ("8 GB zip, unpacked 11 GB on disk", None),
        ("images are 4 GB", None),
        ("memory cards of 64 photos", None),
        ("T-shirt 4 GB", None),
        ("stage T4 of the tumour", None),
        ("from a 32 GB SD card", None),
        ("T4 on Colab", 16),
        ("needs a GPU. The data is 20 GB", None),
    ],
)
def test_the_card_is_read_from_what_is_written(words: str, gigabytes: float | None) -> None:
    card = stated_card(Program(parse_source("a.py", f"# {words}\nx = 1\n".encode())))
    assert (card.gigabytes if card else None) == gigabytes


def script(
    *, card: str = "GTX 1650 (4 GB)", model: str = "models.resnet50()", size: int = 224, batch: int = 128, more: str = "pass"
) -> str:
    return f"""\
# {card}
import timm, torch
from torch import nn
from torchvision import models, transforms as T
from torchvision.datasets import ImageFolder
from torch.utils.data import DataLoader
BATCH = {batch}
tf = T.Compose([T.Resize(({size}, {size})), T.ToTensor()])
train_loader = DataLoader(ImageFolder("train", tf), batch_size=BATCH, shuffle=True)
model = {model}
{more}
"""


@each(
    "changed",
    [
        {},
        {"card": "RTX 2070, 8 GB", "model": "timm.create_model('tf_efficientnet_b4', pretrained=True)", "size": 380, "batch": 64},
        {"card": "4GB card", "model": "timm.create_model('vit_base_patch16_224')", "batch": 64},
        {"card": "T4 (16 GB)", "model": "models.resnet50()", "size": 512, "batch": 64},
        {"model": "models.convnext_tiny()", "batch": 96},
        {"batch": 256, "more": "scaler = torch.amp.GradScaler()"},
    ],
)
def test_far_past_the_card_is_reported_at_the_batch(changed: dict[str, object]) -> None:
    assert lines(script(**changed)) == [f"BATCH = {changed.get('batch', 128)}"]  # type: ignore[arg-type]


@each(
    "changed",
    [
        {"card": "a good day"},
        {"card": "RTX 3090 (24 GB)"},
        {"batch": 32},
        {"batch": 48},
        {"size": 96},
        {"model": "models.mobilenet_v3_small()", "batch": 96},
        {"model": "Net()", "batch": 1024},
        {"more": "scaler = torch.amp.GradScaler()", "batch": 100},
        {"more": "model.requires_grad_(False)"},
        {"more": "model = nn.DataParallel(model)"},
        {"more": "model.set_grad_checkpointing()"},
    ],
)
def test_what_may_fit_is_not(changed: dict[str, object]) -> None:
    assert lines(script(**changed)) == []  # type: ignore[arg-type]


def test_only_training_batches_count() -> None:
    source = script(batch=16) + 'val_loader = DataLoader(ImageFolder("val", tf), batch_size=512)\n'
    assert lines(source) == []


def test_the_batch_of_a_fit_or_a_trainer_counts() -> None:
    assert lines("""
        '''On a laptop with a GTX 1650 (4GB).'''
        from tensorflow import keras
        base = keras.applications.ResNet50(input_shape=(224, 224, 3))
        base.fit(x, y, epochs=3, batch_size=128)
    """) == ["base.fit(x, y, epochs=3, batch_size=128)"]
    assert (
        lines(
            """
        CARD = "RTX 3050, 4 GB"
        from transformers import AutoModelForImageClassification, Trainer, TrainingArguments
        model = AutoModelForImageClassification.from_pretrained("google/vit-base-patch16-224")
        args = TrainingArguments("out", per_device_train_batch_size=64, {more})
        Trainer(model=model, args=args, train_dataset=data).train()
    """.replace("{more}", "num_train_epochs=3")
        )
        != []
    )
