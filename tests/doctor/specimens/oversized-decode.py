# === photographs of 2048 px for an input of 224
import cv2
from torch.utils.data import Dataset
root = "../input/plant-pathology-2020-fgvc7/images"
class Photos(Dataset):
    def __getitem__(self, i):
        return cv2.resize(cv2.imread(self.paths[i]), (224, 224))  # expect: choke code
# === the outputs show how large they are
#%%
from PIL import Image
from torch.utils.data import Dataset
Image.open("a.jpg")
#> <PIL.JpegImagePlugin.JpegImageFile image mode=RGB size=4000x3000>
#%%
class Photos(Dataset):
    def __getitem__(self, i):
        return Image.open(self.paths[i]).resize((256, 256))  # expect: choke code
# === nothing is known of their size: a note
import cv2
from torch.utils.data import Dataset
class Photos(Dataset):
    def __getitem__(self, i):
        return cv2.resize(cv2.imread(self.paths[i]), (224, 224))  # expect: note code
# === silent: a copy that was made small before
import cv2
from torch.utils.data import Dataset
root = "../input/plant-pathology-2020-fgvc7-resized-256"
class Photos(Dataset):
    def __getitem__(self, i):
        return cv2.resize(cv2.imread(self.paths[i]), (1024, 1024))
# === silent: crops of the full image
from torchvision import transforms
from torchvision.datasets import ImageFolder
root = "../input/siim-isic-melanoma"
data = ImageFolder(root, transforms.Compose([transforms.RandomCrop(512), transforms.ToTensor()]))
# === nothing is random, and thirty epochs decode again
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder
steps = transforms.Compose([transforms.Resize(224), transforms.ToTensor()])
loader = DataLoader(ImageFolder("photos", steps), num_workers=4)  # expect: choke code
for epoch in range(30):
    for images, labels in loader:  # expect: further
        model(images).sum().backward()
# === silent: a transform that is not here
from my_transforms import train_steps
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
loader = DataLoader(ImageFolder("photos", transform=train_steps), num_workers=4)
for epoch in range(30):
    for images, labels in loader:
        model(images).sum().backward()
# === tf.data decodes again in each of thirty epochs
import tensorflow as tf
def load(path):
    return tf.io.decode_jpeg(tf.io.read_file(path))  # expect: further
data = tf.data.Dataset.list_files("photos/*").map(load, num_parallel_calls=8).batch(32).prefetch(2)  # expect: choke code
tf.keras.Sequential([]).fit(data, epochs=30)  # expect: further
