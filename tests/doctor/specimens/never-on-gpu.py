# === neither the model nor a batch is moved
import torch
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = Net()  # expect: further
for epoch in range(9):
    for images, labels in loader:  # expect: choke code
        model(images).sum().backward()
# === the outputs show a GPU
#%%
import torch
print(torch.cuda.get_device_name(0))
#> Tesla T4
#%%
for epoch in range(9):
    for images, labels in loader:  # expect: choke outputs
        model(images).sum().backward()
# === the outputs show that there is none
#%%
import torch
print(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
#> cpu
#%%
for epoch in range(9):
    for images, labels in loader:  # expect: note outputs
        model(images).sum().backward()
# === features of a pretrained network, on the CPU
import torch, torchvision
model = torchvision.models.vgg19(pretrained=True)  # expect: further
for path in paths:
    features.append(model(read(path)))  # expect: choke code
# === silent: moved in the loop
import torch
for epoch in range(9):
    for images, labels in loader:
        model(images.to(device)).sum().backward()
# === silent: the model is moved elsewhere
import torch
model = Net()
model.cuda()
def train(model):
    for images, labels in loader:
        model(images).sum().backward()
train(model)
# === silent: everything is made on a device
import torch
torch.set_default_device("cuda")
for images, labels in loader:
    model(images).sum().backward()
# === silent: to(torch.float16) of a loop that moves
import torch
for images, labels in loader:
    model(images.to(torch.float32).cuda()).sum().backward()
# === a switch that is only ever off
import torch
use_gpu = False  # expect: further
model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten())  # expect: further
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if use_gpu:
    model.cuda()
for images, labels in loader:  # expect: choke code
    if use_gpu:
        images, labels = images.cuda(), labels.cuda()
    loss = model(images).sum()
    loss.backward()
    optimizer.step()
# === the outputs show twenty minutes on the CPU
#%%
import torch
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
print(device)
#> cpu
#%%
model = Net().to(device)
for epoch in range(2):
    for images, labels in loader:  # expect: choke outputs
        model(images.to(device)).sum().backward()
#> Epoch 1 took 600 s
#> Epoch 2 took 600 s
# === a device that is the CPU on every machine
import torch
device = torch.device("cpu")
model = Net().to(device)  # expect: further
for images, labels in loader:  # expect: choke code
    model(images.to(device)).sum().backward()
# === features through a method that a loop calls
import torch, torchvision
class Features:
    def __init__(self):
        self.net = torchvision.models.resnet18(pretrained=True)  # expect: further
    def of(self, path):
        return self.net(read(path))  # expect: choke code
features = Features()
for path in paths:
    kept.append(features.of(path))
# === a library that is told to stay on the CPU
from fastai.vision.all import DataBlock, models, vision_learner
dls = DataBlock().dataloaders(path, bs=8, device="cpu")  # expect: choke code
learn = vision_learner(dls, models.resnet18)
learn.dls.device = "cpu"  # expect: further
learn.model.to("cpu")  # expect: further
learn.fit_one_cycle(10)
# === all GPUs are hidden
import os
import keras
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # expect: choke code
keras.Sequential([]).fit(images, labels, epochs=9)
# === silent: on the CPU after the training
from fastai.vision.all import models, vision_learner
learn = vision_learner(dls, models.resnet18)
learn.fit_one_cycle(10)
learn.model.to("cpu")
# === an evaluation at the pace of a CPU
#%%
from tensorflow import keras
model = keras.applications.MobileNet()
model.fit(images, labels, epochs=5)
#%%
model.evaluate(others)  # expect: choke outputs
#> 108/108 ━━━━━━━━━━━━━━━━━━━━ 963s 9s/step - accuracy: 0.9420 - loss: 0.2283
