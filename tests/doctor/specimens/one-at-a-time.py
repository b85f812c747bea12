# === predict for each image of a folder
import numpy as np
from tensorflow import keras
model = keras.models.load_model("m.keras")
for image in images:
    scores.append(model.predict(np.expand_dims(image, 0)))  # expect: choke code
# === a torch network, through a function
import torch
def score(path):
    x = transform(read(path)).unsqueeze(0)
    return model(x)  # expect: choke code
scores = [score(path) for path in paths]
# === one image per step of the evaluation: a choke where many are known to pass
#%%
import torch
from torch.utils.data import DataLoader
print(len(data))
#> 30000 images
#%%
loader = DataLoader(data, batch_size=1)  # expect: choke code
with torch.no_grad():
    for images, labels in loader:
        model(images)
# === one image per step, nothing known
import torch
from torch.utils.data import DataLoader
loader = DataLoader(data, batch_size=1)  # expect: choke code
with torch.no_grad():
    for images, labels in loader:
        model(images)
# === one image after another through Keras' own preprocessing
import os
import numpy as np
from keras.applications.vgg16 import VGG16, preprocess_input
from keras.preprocessing import image
model = VGG16(include_top=False)
for name in os.listdir("photos"):
    pixels = np.expand_dims(image.img_to_array(image.load_img("photos/" + name)), axis=0)
    pixels = preprocess_input(pixels)
    found.append(model.predict(pixels))  # expect: choke code
# === silent: a handful, shown
import numpy as np
from tensorflow import keras
model = keras.models.load_model("m.keras")
for image in images[:5]:
    print(model.predict(np.expand_dims(image, 0)))
# === silent: frames of a camera
import cv2
import numpy as np
from tensorflow import keras
model = keras.models.load_model("m.keras")
camera = cv2.VideoCapture(0)
while True:
    ok, frame = camera.read()
    print(model.predict(np.expand_dims(frame, 0)))
# === silent: batches
from tensorflow import keras
model = keras.models.load_model("m.keras")
for batch in batches:
    scores.append(model.predict(batch))
# === silent: a model of scikit-learn
from sklearn.svm import SVC
model = SVC()
for row in rows:
    scores.append(model.predict(row[None]))
# === silent: drawn
import numpy as np, matplotlib.pyplot as plt
from tensorflow import keras
model = keras.models.load_model("m.keras")
for image in images:
    plt.imshow(model.predict(np.expand_dims(image, 0))[0])
# === silent: names that come from themselves
import torch
for x in batches:
    x = x[0]
    model = model[0]
    scores.append(model(x))
# === a generator of batches of one
from tensorflow import keras
class Batches(keras.utils.Sequence):
    def __getitem__(self, i):
        return load(self.paths[i])
keras.models.load_model("m.keras").predict_generator(Batches(paths, batch_size=1))  # expect: choke code
# === every frame of a file of video
import cv2, torch
from torchvision import models
model = models.resnet50().eval().cuda()
def features(path):
    video = cv2.VideoCapture(path)
    while True:
        ok, frame = video.read()
        if not ok:
            break
        found.append(model(prepare(frame).unsqueeze(0).cuda()))  # expect: choke code
# === paths that are collected in a list first
import os, torch
paths = []
for root, folders, names in os.walk("photos"):
    paths.append(os.path.join(root, names[0]))
for path in paths:
    scores.append(model(read(path).unsqueeze(0)))  # expect: choke code
# === one array of one sample, filled again and again
import numpy as np
from tensorflow import keras
model = keras.models.load_model("m.keras")
batch = np.zeros((1, 224, 224, 3))
for path in paths:
    batch[0] = read(path)
    scores.append(model.predict(batch))  # expect: choke code
# === silent: the loop ends after its first file
from keras.models import load_model
model = load_model("model.h5")
for name in uploaded:
    print(model.predict(read(name)[None]))
    break
# === silent: a counter ends the loop
from keras.models import load_model
model = load_model("model.h5")
for number, name in enumerate(names):
    if number >= 5:
        break
    print(model.predict(read(name)[None]))
