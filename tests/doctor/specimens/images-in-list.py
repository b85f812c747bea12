# === ten thousand photographs as float64
#%%
import cv2, glob
images = []
for path in glob.glob("photos/*"):
    images.append(cv2.resize(cv2.imread(path), (299, 299)) / 255)  # expect: choke outputs
#> 10000 images
# === the outputs show that memory ran out
#%%
import cv2, glob
images = [cv2.imread(path) for path in glob.glob("photos/*")]  # expect: choke outputs
#> MemoryError: Unable to allocate 8.2 GiB for an array
# === nothing is known of their number: a risk
import cv2, glob
images = [cv2.imread(path) for path in glob.glob("photos/*")]  # expect: risk code
# === small ones: a note
import cv2, glob
images = [cv2.resize(cv2.imread(path), (64, 64)) for path in glob.glob("photos/*")]  # expect: note code
# === silent: a hundred images
#%%
import cv2, glob
images = [cv2.imread(path) for path in glob.glob("photos/*")]
#> 100 images
# === silent: features are small
import cv2, glob
features = []
for path in glob.glob("photos/*"):
    features.append(cv2.imread(path).mean())
# === silent: pictures of a figure
import cv2, glob
import matplotlib.pyplot as plt
images = []
for path in glob.glob("photos/*"):
    images.append(cv2.imread(path))
    plt.imshow(images[-1])
# === silent: a handful
import cv2
images = [cv2.imread(path) for path in paths[:9]]
# === every image is copied again for each new one
import cv2, glob
import numpy as np
images = np.empty((0, 64, 64, 3))
for path in glob.glob("photos/*"):
    images = np.append(images, [cv2.resize(cv2.imread(path), (64, 64))], axis=0)  # expect: choke code
# === an evaluation that keeps all its input images
import torch
def predict(model, loader):
    model.eval()
    images, labels, found = [], [], []
    with torch.no_grad():
        for x, y in loader:
            x = x.to("cuda")
            scores = model(x)
            images.append(x.cpu())  # expect: risk code
            labels.append(y)
            found.append(scores.cpu())
    return images, labels, found
# === silent: an evaluation that keeps the first batches, and one that keeps features
import torch
for x, y in loader:
    scores = model(x)
    if len(images) < 4:
        images.append(x.cpu())
for x, y in loader:
    features = backbone(x)
    scores = head_model(features)
    kept.append(features.cpu())
# === gray images as uint8: a note
import cv2, glob
images = []
for path in glob.glob("photos/*"):
    image = cv2.resize(cv2.cvtColor(cv2.imread(path), cv2.COLOR_BGR2GRAY), (600, 600))
    images.append(image)  # expect: note code
