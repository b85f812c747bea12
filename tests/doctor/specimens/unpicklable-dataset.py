# === an open file goes to the workers
import h5py
from torch.utils.data import Dataset, DataLoader
class Tiles(Dataset):
    def __init__(self):
        self.file = h5py.File("tiles.h5")  # expect: risk code
    def __getitem__(self, i):
        return self.file["x"][i]
if __name__ == "__main__":
    loader = DataLoader(Tiles(), num_workers=4)
# === a class of a notebook on Windows
#%%
from torch.utils.data import Dataset, DataLoader
root = "C:/Users/me/photos"
#%%
class Photos(Dataset):  # expect: risk code
    def __getitem__(self, i):
        return i
loader = DataLoader(Photos(), num_workers=4)
#> done
# === the same where nothing shows the system
#%%
from torch.utils.data import Dataset, DataLoader
class Photos(Dataset):  # expect: note code
    def __getitem__(self, i):
        return i
loader = DataLoader(Photos(), num_workers=4)
#> done
# === a lambda for the workers
from torch.utils.data import DataLoader
def main():
    loader = DataLoader(data, num_workers=4, collate_fn=lambda batch: batch)  # expect: note code
# === silent: on Linux
from torch.utils.data import DataLoader
root = "/kaggle/input/photos"
def main():
    loader = DataLoader(data, num_workers=4, collate_fn=lambda batch: batch)
# === silent: closed again
import h5py
from torch.utils.data import Dataset, DataLoader
class Tiles(Dataset):
    def __init__(self):
        self.file = h5py.File("tiles.h5")
        self.count = len(self.file["x"])
        self.file.close()
    def __getitem__(self, i):
        return i
def main():
    loader = DataLoader(Tiles(), num_workers=4)
    start("/home/me/run")
