"""Channel order on its way from the read to what uses it: cases beside the specimens, dashes between them."""

from __future__ import annotations

from tests.linted import OneRule, each

IMPORTS = """
import cv2, numpy as np, torch, random, os, glob
from PIL import Image
from torchvision import transforms as T, models
import torchvision.transforms.functional as TF
import albumentations as A
from albumentations.pytorch import ToTensorV2
import matplotlib.pyplot as plt
from torch.utils.data import Dataset, DataLoader
"""

FOUND = """
img = cv2.imread(p)
plt.imshow(img)
---
class D(Dataset):

    def __init__(self, paths, transform=None):
        self.paths = paths
        self.transform = transform

    def __getitem__(self, i):
        image = cv2.imread(self.paths[i])
        if self.transform:
            image = self.transform(image=image)['image']
        return image
D(ps, A.Compose([A.Normalize(), ToTensorV2()]))
---
def read(p):
    return cv2.imread(p)

def show(p):
    fig, ax = plt.subplots()
    ax.imshow(read(p))
---
class D(Dataset):

    def __getitem__(self, i):
        x = cv2.resize(cv2.imread(self.p[i]), (224, 224))
        x = torch.from_numpy(x).permute(2, 0, 1).float() / 255
        return (x, 1)
net = models.resnet18(weights='DEFAULT')
---
cap = cv2.VideoCapture('a.mp4')
while True:
    ok, frame = cap.read()
    if not ok:
        break
    im = Image.fromarray(frame)
---
from turbojpeg import TurboJPEG
jpeg = TurboJPEG()
x = jpeg.decode(open(p, 'rb').read())
Image.fromarray(x)
---
MEAN = np.array([0.485, 0.456, 0.406])
img = cv2.imread(p) / 255.0
x = (img - MEAN) / 0.2
---
m = np.array(Image.open(p))
m = cv2.resize(m, (4, 4))
cv2.imwrite(q, m)
---
x = T.ToTensor()(cv2.imread(p))
---
images = []
for p in ps:
    images.append(cv2.imread(p))
for ax, im in zip(axes, images):
    ax.imshow(im)
---
from tensorflow.keras.applications import EfficientNetB0
X = np.array([cv2.resize(cv2.imread(p), (224, 224)) for p in ps])
base = EfficientNetB0(include_top=False)
model = build(base)
model.fit(X, y, epochs=3)
---
import timm
model = timm.create_model('a', pretrained=True)
img = cv2.imread(p)
x = torch.tensor(img).permute(2, 0, 1)[None].float()
out = model(x)
---
net = models.resnet18(models.ResNet18_Weights.DEFAULT)

class D(Dataset):

    def __getitem__(self, i):
        return (torch.from_numpy(cv2.imread(self.p[i])).permute(2, 0, 1) / 255.0, 0)
---
net = getattr(models, n)(pretrained=True)

class D(Dataset):

    def __getitem__(self, i):
        return (torch.from_numpy(cv2.imread(self.p[i])).permute(2, 0, 1) / 255.0, 0)
---
norm = T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
x = torch.from_numpy(cv2.imread(p)).permute(2, 0, 1).float() / 255
x = norm(x)
---
im = cv2.cvtColor(cv2.imread(f), cv2.COLOR_BGR2RGB)
out = A.Compose([A.HorizontalFlip()])(image=im)['image']
cv2.imwrite('a.png', out)
---
def load_image(path):
    data = np.fromfile(path, np.uint8)
    return cv2.imdecode(data, cv2.IMREAD_COLOR)

class D(Dataset):

    def __init__(self, df, transforms):
        self.df, self.transforms = (df, transforms)

    def __getitem__(self, i):
        img = load_image(self.df.path[i])
        return self.transforms(Image.fromarray(img))
"""

SILENT = """
img = cv2.imread(p)
plt.imshow(img[:, :, ::-1])
---
img = cv2.imread(p)
b, g, r = cv2.split(img)
plt.imshow(cv2.merge([r, g, b]))
---
img = cv2.imread(p, cv2.IMREAD_UNCHANGED)
plt.imshow(img)
---
class D(Dataset):

    def __init__(self, paths, transform=None):
        self.paths = paths
        self.transform = transform

    def __getitem__(self, i):
        image = cv2.imread(self.paths[i])
        image = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
        mask = cv2.imread(self.m[i], cv2.IMREAD_GRAYSCALE)
        if self.transform:
            image = self.transform(image=image, mask=mask)['image']
        return image
D(ps, A.Compose([A.Normalize(), ToTensorV2()]))
---
def read(p):
    return cv2.imread(p)[..., ::-1]

def show(p):
    plt.imshow(read(p))
---
class D(Dataset):

    def __getitem__(self, i):
        x = cv2.resize(cv2.imread(self.p[i]), (224, 224))
        x = torch.from_numpy(x).permute(2, 0, 1).float() / 255
        return (x, 1)
net = models.resnet18(weights=None)
---
cap = cv2.VideoCapture('a.mp4')
while True:
    ok, frame = cap.read()
    if not ok:
        break
    frame = cv2.cvtColor(frame, cv2.COLOR_BGR2RGB)
    im = Image.fromarray(frame)
---
from turbojpeg import TurboJPEG, TJPF_RGB
jpeg = TurboJPEG()
x = jpeg.decode(open(p, 'rb').read(), pixel_format=TJPF_RGB)
Image.fromarray(x)
---
MEAN = np.array([0.406, 0.456, 0.485])
img = cv2.imread(p) / 255.0
x = (img - MEAN) / 0.2
---
m = np.array(Image.open(mask_path))
cv2.imwrite(q, m)
---
img = cv2.imread(p)
x = T.Compose([T.Lambda(lambda a: cv2.cvtColor(a, cv2.COLOR_BGR2RGB)), T.ToTensor()])(img)
---
from ultralytics import YOLO
m = YOLO('a.pt')
r = m(cv2.imread(p))
---
img = cv2.imread(p)
if rgb:
    img = cv2.cvtColor(img, cv2.COLOR_BGR2RGB)
plt.imshow(img)
---
img = cv2.imread(p)
mask = cv2.inRange(img, lo, hi)
plt.imshow(mask)
plt.imshow(img[:, :, 0])
---
X = np.array([cv2.resize(cv2.imread(p), (224, 224)) for p in ps])
model = build()
model.fit(X, y, epochs=3)
---
im = cv2.imread(f)
out = A.Compose([A.HorizontalFlip()])(image=im)['image']
cv2.imwrite('a.png', out)
---
class D(Dataset):

    def __init__(self, transform):
        self.transform = transform

    def __getitem__(self, i):
        m = cv2.imread(self.m[i], cv2.IMREAD_GRAYSCALE)
        img = cv2.imread(self.p[i])[:, :, ::-1].copy()
        o = self.transform(image=img, mask=m)
        return (o['image'], o['mask'])
D(A.Compose([A.Normalize(), ToTensorV2()]))
---
img = cv2.imread(p)
x = cv2.dnn.blobFromImage(img, 1 / 255.0, (224, 224), swapRB=True)
net = models.resnet18(weights='DEFAULT')
net(torch.from_numpy(x))
"""


RULE = OneRule("bgr-rgb", IMPORTS)


@each("case", FOUND.split("---\n"))
def test_it_is_found_once(case: str) -> None:
    assert len(RULE.lines(case)) == 1


@each("case", SILENT.split("---\n"))
def test_it_is_left_alone(case: str) -> None:
    assert RULE.lines(case) == []


GREY = """
pictures = []
for name in names:
    image = cv2.imread(name, 1)
    pictures.append(np.array(Image.fromarray(image)))
pictures = np.array(pictures) / 255
plt.imshow(pictures[3]{shown})
"""
