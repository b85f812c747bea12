# === evaluation with gradients on
import torch
def evaluate(model, loader):
    model.eval()
    for images, labels in loader:
        outputs = model(images)  # expect: choke code
# === a validation phase
import torch
for epoch in range(9):
    for phase in ("train", "val"):
        for images, labels in loaders[phase]:
            loss = model(images).sum()  # expect: choke code
            if phase == "train":
                loss.backward()
# === four seconds of training: a note
#%%
import torch
for epoch in range(2):
    for images, labels in loader:
        model(images).sum().backward()
#> Training complete in 0m 4s
#%%
def evaluate(model, loader):
    for images, labels in loader:
        outputs = model(images)  # expect: note outputs
# === silent: under no_grad
import torch
def evaluate(model, loader):
    with torch.no_grad():
        for images, labels in loader:
            outputs = model(images)
# === silent: every caller is under it
import torch
def predict(model, images):
    return model(images)
@torch.inference_mode()
def run(model, loader):
    for images in loader:
        predict(model, images)
# === silent: the result is passed backward by the caller
import torch
def step(model, images):
    return model(images).sum()
for images, labels in loader:
    step(model, images).backward()
# === silent: gradients of the input are the point
import torch
def evaluate_saliency(model, loader):
    for images in loader:
        images.requires_grad_()
        grad = torch.autograd.grad(model(images).sum(), images)
# === a few batches are looked at
import torch
model = Net()
for images, labels in loader:
    outputs = model(images)  # expect: note code
    shown += 1
    if shown == 7:
        break
# === silent: an evaluation that clears gradients is no training
import torch
model = Net()
with torch.no_grad():
    for images, labels in loader:
        optimizer.zero_grad()
        outputs = model(images)
