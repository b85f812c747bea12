# === a folder listed for each sample
import os
from torch.utils.data import Dataset
class Photos(Dataset):
    def __getitem__(self, i):
        return os.listdir(self.root)[i]  # expect: choke code
# === a table parsed for each sample
import pandas as pd
from torch.utils.data import Dataset
class Photos(Dataset):
    def __getitem__(self, i):
        return pd.read_csv(self.table).iloc[i]  # expect: choke code
# === two scans of a table for each sample
from torch.utils.data import Dataset
class Photos(Dataset):
    def __getitem__(self, i):
        a = self.df[self.df.id == self.ids[i]]  # expect: choke code
        b = self.df.loc[self.df.id == self.ids[i], "label"]  # expect: further
        return a, b
# === asked of a local disk: a note; of a mount: a choke
import os
from torch.utils.data import Dataset
class Photos(Dataset):
    def __getitem__(self, i):
        return os.path.exists(self.paths[i])  # expect: note code
# === asked of a mount
import os
from torch.utils.data import Dataset
root = "/content/drive/MyDrive/photos"
class Photos(Dataset):
    def __getitem__(self, i):
        return os.path.exists(self.paths[i])  # expect: choke code
# === thirty images, two epochs
#%%
import os
from torch.utils.data import Dataset
class Photos(Dataset):
    def __getitem__(self, i):
        return os.listdir(self.root)[i]  # expect: note outputs
#> 30 images
#%%
for epoch in range(2):
    for batch in loader:
        net(batch).backward()
# === silent: once, in __init__
import os
from torch.utils.data import Dataset
class Photos(Dataset):
    def __init__(self):
        self.names = os.listdir(self.root)
    def __getitem__(self, i):
        return self.names[i]
# === silent: once per worker
import json
from torch.utils.data import Dataset
class Photos(Dataset):
    def __getitem__(self, i):
        if self.meta is None:
            self.meta = json.load(self.file)
        return self.meta[i]
# === silent: the sample's own file
import json
from torch.utils.data import Dataset
class Photos(Dataset):
    def __getitem__(self, i):
        return json.load(open(self.paths[i]))
# === all images become an array for each sample
import numpy as np
from torch.utils.data import Dataset
class Held(Dataset):
    def __init__(self, images):
        self.images = images
    def __getitem__(self, index):
        masks = np.array(self.masks)
        image = np.array(self.images)[index, :, :]  # expect: choke code
        return image, masks[index]  # expect: further
# === silent: one image becomes an array
import numpy as np
from torch.utils.data import Dataset
class Read(Dataset):
    def __getitem__(self, index):
        image = np.array(self.read(index))
        box = self.boxes[index]
        return image[box], np.array(self.mean)
