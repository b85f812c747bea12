# === blur on the full image, before it is made small
from torchvision import transforms
train = transforms.Compose([
    transforms.GaussianBlur(5),  # expect: choke code
    transforms.Resize(224),
    transforms.ToTensor(),
])
# === a pipeline that costs more than decoding
import albumentations as A
train = A.Compose([
    A.Resize(512, 512),
    A.ElasticTransform(p=0.8),  # expect: choke code
    A.CLAHE(p=1.0),
])
# === small images scaled up one by one
from torchvision import transforms
from torchvision.datasets import CIFAR10
train = CIFAR10(".", transform=transforms.Compose([transforms.Resize(224), transforms.ToTensor()]))  # expect: choke code
# === a generator of Keras that warps, and what the outputs say of it
#%%
from tensorflow import keras
from tensorflow.keras.preprocessing.image import ImageDataGenerator
warp = ImageDataGenerator(rotation_range=20, zoom_range=0.1)  # expect: choke outputs
#%%
model = keras.Sequential([])
model.fit(warp.flow(x, y), epochs=2)  # expect: further
#> Epoch 1/2
#> 100/100 [==============================] - 90s 900ms/step - loss: 0.7
#> Epoch 2/2
#> 100/100 [==============================] - 88s 880ms/step - loss: 0.6
# === silent: cheap transforms, small images
from torchvision import transforms
train = transforms.Compose([transforms.Resize(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()])
# === silent: one of several, at a small size
import albumentations as A
train = A.Compose([A.Resize(128, 128), A.OneOf([A.MotionBlur(), A.MedianBlur()], p=0.2)])
# === silent: kornia works on the batch
import kornia
train = kornia.Compose([kornia.RandomPerspective(), kornia.ElasticTransform()])
# === images of a known small set, scaled up from files
from torchvision import transforms
from torchvision.datasets import ImageFolder
data = ImageFolder("../input/aerial-cactus/train", transforms.Compose([transforms.Resize(224), transforms.ToTensor()]))  # expect: choke code
# === a slow resize for each sample
from skimage import transform
from torch.utils.data import Dataset
class Photos(Dataset):
    def __getitem__(self, i):
        return transform.resize(self.images[i], (224, 224))  # expect: choke code
# === pixels of a mask, one by one in Python
import cv2
import numpy as np
from torch.utils.data import Dataset
class Masks(Dataset):
    def __getitem__(self, index):
        mask = cv2.imread(self.paths[index])
        found = np.zeros(mask.shape[:2])
        for y in range(mask.shape[0]):  # expect: choke code
            for x in range(mask.shape[1]):
                found[y, x] = self.classes[tuple(mask[y][x])]
        return found
# === silent: a matrix of twelve classes, patches, and a figure
import cv2
for path in paths:
    image = cv2.imread(path)
    for y in range(12):
        for x in range(12):
            counts[y, x] += 1
    for y in range(0, image.shape[0], 256):
        for x in range(0, image.shape[1], 256):
            patches.append(image[y:y + 256, x:x + 256])
for y in range(matrix.shape[0]):
    for x in range(matrix.shape[1]):
        plt.text(x, y, matrix[y, x])
# === warped, but small
from keras.preprocessing.image import ImageDataGenerator
makes = ImageDataGenerator(zoom_range=0.2)  # expect: note code
flow = makes.flow_from_directory("train", target_size=(64, 64))
model.fit(flow, epochs=10)  # expect: further
