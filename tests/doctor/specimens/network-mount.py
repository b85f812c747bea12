# === images on Google Drive, read in every epoch
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
root = "/content/drive/MyDrive/photos"  # expect: choke code
loader = DataLoader(ImageFolder(root), num_workers=2)
# === tensors that tf.data loads from Drive in every epoch
import tensorflow as tf
train = tf.data.experimental.load("/content/drive/MyDrive/data/train")  # expect: choke code
tf.keras.Sequential([]).fit(train, epochs=20)
# === silent: only weights go to Drive
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
save_path = "/content/drive/MyDrive/models"
loader = DataLoader(ImageFolder("/content/photos"), num_workers=2)
# === silent: copied to the machine first
#%%
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
root = "/content/drive/MyDrive/photos"
!cp -r /content/drive/MyDrive/photos /content/
#%%
loader = DataLoader(ImageFolder("/content/photos"), num_workers=2)
#> copied
# === the outputs show three images for one epoch
#%%
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
loader = DataLoader(ImageFolder("/content/drive/MyDrive/photos"), num_workers=2)  # expect: note outputs
#> 30 images
#%%
for epoch in range(2):
    for batch in loader:
        net(batch).backward()
# === a list of images, read from Drive in each run
import cv2, glob
from tensorflow import keras
folder = "/content/drive/MyDrive/photos"  # expect: choke code
images = [cv2.imread(path) for path in glob.glob(folder + "/*")]
keras.Sequential([]).fit(images, labels, epochs=9)
# === silent: one picture from Drive
import cv2
from tensorflow import keras
folder = "/content/drive/MyDrive/photos/"
example = cv2.imread(folder + name)
keras.Sequential([]).fit(x, y, epochs=9)
# === unpacked on Drive
#%%
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
!unzip -q photos.zip -d "/content/drive/MyDrive/photos"
#%%
loader = DataLoader(ImageFolder("/content/drive/MyDrive/photos"), num_workers=2)  # expect: choke code
