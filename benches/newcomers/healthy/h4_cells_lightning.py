"""Cell segmentation with Lightning. Decoding a 128x128 PNG is cheap next to the U-Net, so no workers."""
import logging
import time
import warnings

import tv_compat  # noqa: F401
import cv2
import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

from make_data import ensure

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Cells(Dataset):
    def __init__(self, root):
        self.images = sorted((root / "images").glob("*.png"))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        p = self.images[i]
        x = torch.from_numpy(cv2.imread(str(p))).permute(2, 0, 1).float().div_(127.5).sub_(1)
        m = torch.from_numpy(cv2.imread(str(p.parent.parent / "masks" / p.name), cv2.IMREAD_GRAYSCALE))
        return x, m.long()


def conv(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True))


class Segmenter(L.LightningModule):
    def __init__(self, w=12, classes=4):
        super().__init__()
        self.a, self.b, self.c = conv(3, w), conv(w, 2 * w), conv(2 * w, 4 * w)
        self.d, self.e, self.out = conv(6 * w, 2 * w), conv(3 * w, w), nn.Conv2d(w, classes, 1)

    def forward(self, x):
        x = x.contiguous(memory_format=torch.channels_last)
        a = self.a(x)
        b = self.b(F.max_pool2d(a, 2))
        c = self.c(F.max_pool2d(b, 2))
        b = self.d(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        return self.out(self.e(torch.cat([F.interpolate(b, scale_factor=2), a], 1)))

    def training_step(self, batch, i):
        x, y = batch
        logits = self(x)
        loss = F.cross_entropy(logits, y)
        if i % 5 == 0:
            self.log("pix", (logits.argmax(1) == y).float().mean())
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


class Clock(L.Callback):
    def on_train_start(self, trainer, module):
        self.t0 = time.time()

    def on_train_epoch_end(self, trainer, module):
        print({k: round(float(v), 3) for k, v in trainer.callback_metrics.items()})

    def on_train_end(self, trainer, module):
        n = trainer.global_step * trainer.train_dataloader.batch_size
        print(f"trained {n} samples in {time.time() - self.t0:.2f} s")


if __name__ == "__main__":
    L.seed_everything(8, verbose=False)
    loader = DataLoader(Cells(ensure("cells")), batch_size=8, shuffle=True, drop_last=True)
    trainer = L.Trainer(
        max_epochs=4, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[Clock()],
    )
    trainer.fit(Segmenter().to(memory_format=torch.channels_last), loader)
