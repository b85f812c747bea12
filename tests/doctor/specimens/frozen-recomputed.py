# === a frozen network and nothing random
import torch, torchvision
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
loader = DataLoader(ImageFolder("photos"), num_workers=4)
backbone = torchvision.models.resnet50()
for p in backbone.parameters():
    p.requires_grad = False  # expect: choke code
backbone.fc = torch.nn.Linear(2048, 5)
for epoch in range(20):
    for images, labels in loader:  # expect: further
        backbone(images).sum().backward()
# === Keras
from tensorflow import keras
base = keras.applications.VGG16(include_top=False)
base.trainable = False  # expect: choke code
model = keras.Sequential([base, keras.layers.Dense(5)])
model.fit(x, y, epochs=30)  # expect: further
# === a network under no_grad in the loop that trains another one
import torch, torchvision
encoder = torchvision.models.resnet18()
for epoch in range(20):
    for images, labels in loader:  # expect: further
        with torch.no_grad():  # expect: choke code
            features = encoder(images)
        loss = head_model(features).sum()
        loss.backward()
# === random crops, twenty epochs: the validation images stay the same
import torch, torchvision
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder
steps = transforms.Compose([transforms.RandomResizedCrop(224), transforms.ToTensor()])
loader = DataLoader(ImageFolder("photos", transform=steps), num_workers=4)
model = torchvision.models.resnet50()
for p in model.parameters():
    p.requires_grad = False  # expect: choke code
model.fc = torch.nn.Linear(2048, 5)
for epoch in range(20):
    for images, labels in loader:  # expect: further
        model(images).sum().backward()
# === silent: thawed before the training
from tensorflow import keras
base = keras.applications.VGG16(include_top=False)
base.trainable = False
base.trainable = True
model = keras.Sequential([base, keras.layers.Dense(5)])
model.fit(x, y, epochs=30)
# === silent: only the first layers are frozen
from tensorflow import keras
base = keras.applications.VGG16(include_top=False)
for layer in base.layers[:10]:
    layer.trainable = False
keras.Sequential([base]).fit(x, y, epochs=30)
# === silent: a teacher
import torch
teacher_model = make()
for p in teacher_model.parameters():
    p.requires_grad = False
for epoch in range(20):
    for images, labels in loader:
        model(images).sum().backward()
# === silent: two epochs
from tensorflow import keras
base = keras.applications.VGG16(include_top=False)
base.trainable = False
keras.Sequential([base]).fit(x, y, epochs=2)
# === epochs by an option of the command line
import argparse, torch, torchvision
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder
parser = argparse.ArgumentParser()
parser.add_argument("-e", "--epochs", type=int, default=10)
args = vars(parser.parse_args())
steps = transforms.Compose([transforms.RandomResizedCrop(224), transforms.ToTensor()])
loader = DataLoader(ImageFolder("photos", transform=steps), num_workers=4)
model = torchvision.models.resnet50()
for p in model.parameters():
    p.requires_grad = False  # expect: choke code
model.fc = torch.nn.Linear(2048, 5)
for epoch in range(args["epochs"]):
    for images, labels in loader:  # expect: further
        model(images).sum().backward()
# === only the head is given to the optimizer
import torch, torchvision
model = torchvision.models.resnet18()
optimizer = torch.optim.Adam(model.fc.parameters())  # expect: choke code
for epoch in range(20):
    for images, labels in loader:  # expect: further
        model(images).sum().backward()
# === all layers but the last few are frozen
from tensorflow import keras
base = keras.applications.VGG16(include_top=False)
for layer in base.layers[:-4]:
    layer.trainable = False  # expect: choke code
keras.Sequential([base]).fit(x, y, epochs=30)  # expect: further
# === a small network and random crops: a note
from torch.utils.data import DataLoader
from torchvision import models, transforms
from torchvision.datasets import ImageFolder
loader = DataLoader(ImageFolder("photos", transforms.RandomResizedCrop(224)), num_workers=4)
model = models.mobilenet_v2()
for p in model.parameters():
    p.requires_grad = False  # expect: note code
for epoch in range(15):
    for images, labels in loader:  # expect: further
        model(images).sum().backward()
