# === memory is cleaned at every step
import torch
for images, labels in loader:
    loss = model(images.cuda()).sum()
    loss.backward()
    torch.cuda.empty_cache()  # expect: choke code
# === one read per step: a note
import torch
for images, labels in loader:
    loss = model(images.cuda()).sum()
    loss.backward()
    total += loss.item()  # expect: note code
# === a read for each sample of a batch
import torch
for images, labels in loader:
    scores = model(images.cuda())
    scores.sum().backward()
    for score in scores:
        kept.append(score.item())  # expect: choke code
# === one read where the outputs show short steps
#%%
import torch
for epoch in range(2):
    for images, labels in tqdm(loader):
        loss = model(images.cuda()).sum()
        loss.backward()
        total += loss.item()  # expect: choke outputs
#> 100%|##########| 20000/20000 [03:00<00:00, 111.1it/s]
#> 100%|##########| 20000/20000 [03:00<00:00, 111.1it/s]
# === silent: every hundredth step
import torch
for number, (images, labels) in enumerate(loader):
    loss = model(images.cuda()).sum()
    loss.backward()
    if number % 100 == 0:
        print(loss.item())
# === silent: a clock needs it
import time, torch
for images, labels in loader:
    begun = time.perf_counter()
    model(images.cuda()).sum().backward()
    torch.cuda.synchronize()
    times.append(time.perf_counter() - begun)
# === silent: no GPU
import torch
for images, labels in loader:
    loss = model(images).sum()
    loss.backward()
    total += loss.item()
# === every pixel goes through scikit-learn for each batch
import torch
from sklearn.metrics import jaccard_score
def iou(pred, mask):
    return jaccard_score(mask.cpu().numpy().flatten(), pred.cpu().numpy().flatten())  # expect: choke code
with torch.no_grad():
    for images, masks in val_loader:
        scores.append(iou(model(images.cuda()) > 0, masks))
# === silent: labels of a classifier, counted once
import torch
from sklearn.metrics import f1_score
with torch.no_grad():
    for images, labels in val_loader:
        found.append(model(images.cuda()).argmax(1).flatten())
print(f1_score(labels_all, torch.cat(found).cpu()))
# === a read for each sample in evaluation
import torch
with torch.no_grad():
    for images, names in test_loader:
        found = model(images.cuda()).argmax(1)
        for i in range(len(names)):
            rows.append((names[i], found[i].item()))  # expect: choke code
# === a picture at every step
import torch
from torchvision.utils import save_image
for number, (images, labels) in enumerate(loader):
    loss = model(images.cuda()).sum()
    loss.backward()
    save_image(images, f"{number}.png")  # expect: choke code
# === weights at every step
import torch
for images, labels in loader:
    loss = model(images.cuda()).sum()
    loss.backward()
    torch.save(model.state_dict(), "last.pt")  # expect: choke code
# === pictures in Lightning
import lightning as L
class Net(L.LightningModule):
    def training_step(self, batch, number):
        self.logger.experiment.add_image("input", batch[0][0], number)  # expect: choke code
        return self.loss(batch)
# === silent: a picture every hundredth step
import torch
for number, (images, labels) in enumerate(loader):
    loss = model(images.cuda()).sum()
    loss.backward()
    if number % 100 == 0:
        writer.add_image("input", images[0], number)
# === silent: weights once per epoch
import torch
for epoch in range(9):
    for images, labels in loader:
        model(images.cuda()).sum().backward()
    torch.save(model.state_dict(), "last.pt")
# === the training waits for its data
#%%
import torch, torchvision
from torch.utils.data import DataLoader
loader = DataLoader(torchvision.datasets.ImageFolder("photos"), batch_size=16, num_workers=1)
model = Net().to("cuda")
for epoch in range(2):
    for images, labels in tqdm(loader):
        loss = model(images.cuda()).sum()
        loss.backward()
        total += loss.item()  # expect: note outputs
#> 100%|██████████| 4000/4000 [01:17<00:00, 51.56it/s]
#> 100%|██████████| 4000/4000 [01:16<00:00, 52.44it/s]
