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
