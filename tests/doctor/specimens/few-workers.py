# === one worker
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
loader = DataLoader(ImageFolder("photos"), num_workers=1)  # expect: choke code
# === two workers, nothing is known of the machine
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
loader = DataLoader(ImageFolder("photos"), num_workers=2)  # expect: note code
# === two workers where the outputs show sixteen cores
#%%
import os
print(os.cpu_count())
#> 16
#%%
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
loader = DataLoader(ImageFolder("photos"), num_workers=2)  # expect: choke outputs
# === sixteen workers on two cores
#%%
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
loader = DataLoader(ImageFolder("photos"), num_workers=16)  # expect: choke outputs
#> UserWarning: This DataLoader will create 16 worker processes in total. Our suggested max number of worker in current system is 2
# === silent: four workers
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
loader = DataLoader(ImageFolder("photos"), num_workers=4)
