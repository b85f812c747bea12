# === thirty epochs, nothing saved
import torch
for epoch in range(30):  # expect: choke code
    for images, labels in loader:
        net(images).sum().backward()
# === the loop over batches is in a function
import torch
def train_epoch():
    for images, labels in loader:
        net(images).sum().backward()
for epoch in range(30):  # expect: choke code
    train_epoch()
# === saved at the end of many epochs only
import torch
for epoch in range(30):  # expect: choke code
    for images, labels in loader:
        net(images).sum().backward()
torch.save(net.state_dict(), "net.pt")
# === saved at the end of a few epochs
import torch
for epoch in range(6):  # expect: note code
    for images, labels in loader:
        net(images).sum().backward()
torch.save(net.state_dict(), "net.pt")
# === saved at the end of two hours
#%%
import torch
for epoch in range(2):  # expect: choke outputs
    for images, labels in loader:
        net(images).sum().backward()
torch.save(net.state_dict(), "net.pt")
#> Epoch 1 took 3600 s
#> Epoch 2 took 3600 s
# === four seconds
#%%
import torch
for epoch in range(40):  # expect: note outputs
    for images, labels in loader:
        net(images).sum().backward()
#> Training complete in 0m 4s
# === Keras without a callback that saves
from tensorflow import keras
stop = keras.callbacks.EarlyStopping()
keras.Sequential([]).fit(x, y, epochs=50, callbacks=[stop])  # expect: choke code
# === silent: saved in the loop
import torch
for epoch in range(30):
    for images, labels in loader:
        net(images).sum().backward()
    torch.save(net.state_dict(), f"{epoch}.pt")
# === silent: saved by a method that the loop calls
import torch
class Runner:
    def keep(self):
        torch.save(self.net.state_dict(), "net.pt")
    def run(self):
        for epoch in range(30):
            for images, labels in self.loader:
                self.net(images).sum().backward()
            self.keep()
# === silent: callbacks that save, added later
from tensorflow import keras
calls = [keras.callbacks.EarlyStopping()]
calls.append(keras.callbacks.ModelCheckpoint("best.keras"))
keras.Sequential([]).fit(x, y, epochs=50, callbacks=calls)
# === silent: Lightning saves by itself
import lightning as L
L.Trainer(max_epochs=50).fit(model)
# === the second model is never saved
from tensorflow import keras
first = keras.Sequential([])
first.fit(x, y, epochs=12)
first.save("first.keras")
second = keras.Sequential([])
second.fit(x, y, epochs=12)  # expect: choke code
# === a number of epochs that is not in the code
import torch
for epoch in range(settings.epochs):  # expect: choke code
    for images, labels in loader:
        net(images).sum().backward()
# === silent: an inner part of a training, called from elsewhere
import torch
def train_epoch(net, loader):
    for images, labels in loader:  # expect: note code
        net(images).sum().backward()
# === only pictures and labels are saved
import pickle, torch
from PIL import Image
image = Image.open("a.png")
image.save("b.png")
pickle.dump(names, open("names.pkl", "wb"))
for epoch in range(30):  # expect: choke code
    for images, labels in loader:
        optimizer.zero_grad()
        net(images).sum().backward()
# === the outputs stop in the sixth epoch of eight, before the save
#%%
import torch
for epoch in range(8):  # expect: choke outputs
    for images, labels in loader:
        net(images).sum().backward()
    print(f"Época {epoch + 1}/8")
#> Época 5/8
#> Época 6/8
#%%
torch.save(net.state_dict(), "net.pt")
# === two epochs of sixty thousand images
#%%
import torch
for epoch in range(2):  # expect: choke code
    for images, labels in loader:
        net(images).sum().backward()
#> Found 60000 images belonging to 5 classes.
# === dense layers alone
from keras import Sequential
from keras.layers import Dense
model = Sequential([Dense(768), Dense(2)])
model.fit(x, y, epochs=50)  # expect: note code
model.save("model.keras")
