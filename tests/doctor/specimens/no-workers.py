# === a folder of images, decoded in the process that trains
import torch
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
loader = DataLoader(ImageFolder("photos"), batch_size=32)  # expect: choke code
for epoch in range(20):
    for images, labels in loader:
        net(images.cuda()).sum().backward()
# === workers that a class of settings sets to 0
import cv2
from torch.utils.data import Dataset, DataLoader
class CFG:
    workers = 0
class Photos(Dataset):
    def __getitem__(self, i):
        return cv2.imread(self.paths[i])
loader = DataLoader(Photos(), num_workers=CFG.workers)  # expect: choke code
# === the outputs show four minutes per epoch
#%%
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
#%%
loader = DataLoader(ImageFolder("photos"), batch_size=32)  # expect: choke outputs
#%%
for epoch in range(2):
    for images, labels in loader:
        net(images.cuda()).sum().backward()
#> Epoch 1 loss 0.4 time: 240 s
#> Epoch 2 loss 0.3 time: 238 s
# === the outputs show eight seconds of training
#%%
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
loader = DataLoader(ImageFolder("photos"), batch_size=32)  # expect: note outputs
#%%
for epoch in range(2):
    for images, labels in loader:
        net(images.cuda()).sum().backward()
#> Epoch 1 loss 0.4 time: 4 s
#> Epoch 2 loss 0.3 time: 4 s
# === Keras reads a folder with one thread
from tensorflow import keras
from tensorflow.keras.preprocessing.image import ImageDataGenerator
flow = ImageDataGenerator(rescale=1 / 255).flow_from_directory("photos", target_size=(224, 224))  # expect: further
model = keras.Sequential([])
model.fit(flow, epochs=20)  # expect: choke code
# === a Sequence that decodes
import cv2, keras
class Batches(keras.utils.Sequence):
    def __getitem__(self, i):
        return [cv2.imread(path) for path in self.paths[i]]
keras.Sequential([]).fit(Batches(), epochs=5)  # expect: choke code
# === a trainer of Hugging Face that reads images
from transformers import AutoImageProcessor, Trainer, TrainingArguments
processor = AutoImageProcessor.from_pretrained("vit")
arguments = TrainingArguments("out", num_train_epochs=3)  # expect: choke code
# === a loop that decodes its images itself
import cv2, torch
for epoch in range(9):
    for path in paths:  # expect: choke code
        loss = net(torch.tensor(cv2.imread(path)).cuda())
        loss.backward()
# === silent: workers are there
import torch
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
loader = DataLoader(ImageFolder("photos"), batch_size=32, num_workers=8)
# === silent: the images lie in memory
from torch.utils.data import DataLoader
from torchvision.datasets import MNIST
from torchvision import transforms
loader = DataLoader(MNIST(".", transform=transforms.ToTensor()), batch_size=32)
# === silent: workers depend on the machine
import torch, cv2
from torch.utils.data import Dataset, DataLoader
class Photos(Dataset):
    def __getitem__(self, i):
        return cv2.imread(self.paths[i])
if torch.cuda.is_available():
    workers = 4
else:
    workers = 0
loader = DataLoader(Photos(), num_workers=workers)
# === silent: one batch is looked at
import cv2
from torch.utils.data import Dataset, DataLoader
class Photos(Dataset):
    def __getitem__(self, i):
        return cv2.imread(self.paths[i])
def try_it():
    loader = DataLoader(Photos())
    print(next(iter(loader)))
# === prediction from a generator
from tensorflow import keras
from keras.preprocessing.image import ImageDataGenerator
model = keras.models.load_model("m.keras")
test = ImageDataGenerator().flow_from_directory("test")  # expect: further
model.predict(test)  # expect: choke code
# === a loop over paths, read by a function that is not here
import torch
from helpers import load_image_rgb
for path in paths:  # expect: choke code
    net(load_image_rgb(path)).sum().backward()
# === a dataset that is not here
import cv2
from elsewhere import Photos
from torch.utils.data import DataLoader
for images, labels in DataLoader(Photos("train"), batch_size=8):  # expect: choke code
    net(images).sum().backward()
# === silent: a dataset of tensors that is not here
import cv2
from elsewhere import FeatureSet
from torch.utils.data import DataLoader
for rows, labels in DataLoader(FeatureSet("train"), batch_size=8):
    net(rows).sum().backward()
# === a short progress bar of another cell says nothing about the training
#%%
import cv2
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
for path in tqdm(paths):
    sizes.append(cv2.imread(path).shape)
#> 100%|##########| 200/200 [00:02<00:00, 100.0it/s]
#%%
loader = DataLoader(ImageFolder("photos"), batch_size=32)  # expect: choke code
for epoch in range(30):
    for images, labels in loader:
        net(images).sum().backward()
# === a Sequence that wraps a dataset
import cv2
from tensorflow import keras
class Pairs:
    def __getitem__(self, i):
        return cv2.imread(self.paths[i])
class Batches(keras.utils.Sequence):
    def __getitem__(self, i):
        return [self.pairs[k] for k in range(i, i + 8)]
keras.Sequential([]).fit(Batches(Pairs()), epochs=5)  # expect: choke code
# === a Sequence that is not here
import cv2
from tensorflow import keras
from helpers import DataGen
batches = DataGen("photos", 32)  # expect: further
keras.Sequential([]).fit(batches, epochs=5)  # expect: choke code
# === a generator that converts colours
from keras.preprocessing.image import ImageDataGenerator
from skimage.color import rgb2lab
from tensorflow import keras
def colours(images):
    for batch in ImageDataGenerator().flow(images):
        yield rgb2lab(batch)
keras.Sequential([]).fit(colours(images), epochs=5)  # expect: choke code
# === arrays that pass through transforms one by one
from torch.utils.data import DataLoader, Dataset
class Arrays(Dataset):
    def __init__(self, images, transform):
        self.images, self.transform = images, transform
    def __getitem__(self, i):
        return self.transform(self.images[i])
loader = DataLoader(Arrays(images, steps), batch_size=32)  # expect: choke code
# === random crops of small colour images
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import CIFAR10
steps = transforms.Compose([transforms.RandomCrop(32, padding=4), transforms.ToTensor()])
loader = DataLoader(CIFAR10(".", transform=steps), batch_size=128)  # expect: choke code
# === silent: a loader that nothing reads, in a file that runs a network
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
loader = DataLoader(ImageFolder("photos"), batch_size=16)
model.eval()
for image in images:
    print(model(image))
# === the network on the CPU takes the time: a note
#%%
import keras
base = keras.applications.ResNet50()
train = keras.preprocessing.image.ImageDataGenerator().flow_from_directory("photos")  # expect: further
#> Num GPUs Available:  0
#> Found 5216 images belonging to 2 classes.
#%%
keras.Sequential([base]).fit(train, epochs=2)  # expect: note outputs
#> Epoch 1/2
#> 163/163 [==============================] - 436s 3s/step - loss: 0.8
#> Epoch 2/2
#> 163/163 [==============================] - 423s 3s/step - loss: 0.8
