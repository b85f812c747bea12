"""This machine has a torchvision wheel built for another torch: declare the two
operators it insists on, so that lightning / timm / transformers can import it."""
import torch

_lib = torch.library.Library("torchvision", "DEF")
for _name in ("nms", "qnms"):
    try:
        _lib.define(_name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    except RuntimeError:
        pass
