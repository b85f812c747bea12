from .data import PhotoFolder, make_loader
from .model import SceneNet

__all__ = ["PhotoFolder", "make_loader", "SceneNet"]
