"""Operators that torchvision's Python side expects and a CPU build of torch may lack."""

import torch

if not hasattr(torch.ops.torchvision, "nms"):
    _lib = torch.library.Library("torchvision", "DEF")
    _lib.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _lib.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
