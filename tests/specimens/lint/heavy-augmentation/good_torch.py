import albumentations as A
import cv2
import kornia.augmentation as K
import numpy as np
import segmentation_models_pytorch as smp
import torch
from albumentations.pytorch import ToTensorV2
from torch.utils.data import DataLoader, Dataset


class CFG:
    train_list = "nerves/train.txt"
    batch_size = 12
    epochs = 4
    lr = 2e-4
    workers = 4


train_tfms = A.Compose(
    [
        A.HorizontalFlip(p=0.5),
        A.RandomBrightnessContrast(p=0.3),
        A.Rotate(limit=10, p=0.5),
        A.GaussNoise(p=0.2),
        A.Normalize(mean=(0.5,), std=(0.25,)),
        ToTensorV2(),
    ]
)

batch_tfms = K.AugmentationSequential(
    K.RandomElasticTransform(alpha=(2.0, 2.0), p=0.7),
    K.RandomAffine(degrees=15, translate=(0.1, 0.1), p=0.5),
    K.RandomPerspective(0.2, p=0.3),
    K.RandomGaussianBlur((5, 5), (0.1, 1.5), p=0.2),
    data_keys=["input", "mask"],
)


class UltrasoundDataset(Dataset):
    def __init__(self, listing, tfms):
        with open(listing) as f:
            self.names = f.read().split()
        self.tfms = tfms

    def __len__(self):
        return len(self.names)

    def __getitem__(self, idx):
        name = self.names[idx]
        image = cv2.imread(f"nerves/images/{name}.png", cv2.IMREAD_GRAYSCALE)
        mask = cv2.imread(f"nerves/masks/{name}.png", cv2.IMREAD_GRAYSCALE)
        out = self.tfms(image=image[..., None], mask=(mask > 0).astype(np.float32))
        return out["image"], out["mask"][None]


def run():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    ds = UltrasoundDataset(CFG.train_list, train_tfms)
    dl = DataLoader(ds, batch_size=CFG.batch_size, shuffle=True, num_workers=CFG.workers)
    model = smp.Unet("resnet18", in_channels=1, classes=1).to(device)
    loss_fn = smp.losses.DiceLoss(mode="binary")
    opt = torch.optim.AdamW(model.parameters(), lr=CFG.lr)
    for epoch in range(CFG.epochs):
        model.train()
        for image, mask in dl:
            image, mask = batch_tfms(image.to(device), mask.to(device))
            loss = loss_fn(model(image), mask)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print("finished epoch", epoch)


if __name__ == "__main__":
    run()
