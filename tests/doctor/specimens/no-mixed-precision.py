# === an hour on a T4: a choke, where no loader is in the way
#%%
import torch
print(torch.cuda.get_device_name(0))
#> Tesla T4
#%%
for epoch in range(2):
    for images, labels in loader:  # expect: choke outputs
        model(images.cuda()).sum().backward()
#> Epoch 1 took 1800 s
#> Epoch 2 took 1800 s
# === an hour on a K80, which has no fast 16 bits
#%%
import torch
print(torch.cuda.get_device_name(0))
#> Tesla K80
#%%
for epoch in range(2):
    for images, labels in loader:  # expect: note outputs
        model(images.cuda()).sum().backward()
#> Epoch 1 took 1800 s
#> Epoch 2 took 1800 s
# === nothing is known
import torch
for images, labels in loader:  # expect: note code
    model(images.cuda()).sum().backward()
# === silent: autocast
import torch
for images, labels in loader:
    with torch.autocast("cuda"):
        model(images.cuda()).sum().backward()
# === silent: a policy of Keras
from tensorflow import keras
keras.mixed_precision.set_global_policy("mixed_float16")
keras.Sequential([]).fit(x, y, epochs=3)
# === a large network on CUDA
import torch, timm
model = timm.create_model("vit_large_patch16_224").to("cuda")
for epoch in range(9):
    for images, labels in loader:  # expect: choke code
        model(images.cuda()).sum().backward()
# === a known network that ran out of GPU memory, though its loader has no worker
#%%
import torch, torchvision
from torch.utils.data import DataLoader
model = torchvision.models.segmentation.deeplabv3_resnet50().to("cuda")
loader = DataLoader(torchvision.datasets.ImageFolder("photos"), batch_size=3)
for epoch in range(9):
    for images, labels in loader:  # expect: choke code
        model(images.cuda()).sum().backward()
#> CUDA out of memory. Tried to allocate 192.00 MiB.
# === one worker is the limit
import torch, torchvision
from torch.utils.data import DataLoader
model = torchvision.models.resnet50().to("cuda")
loader = DataLoader(torchvision.datasets.ImageFolder("photos"), batch_size=32, num_workers=1)
for epoch in range(9):
    for images, labels in loader:  # expect: note code
        model(images.cuda()).sum().backward()
