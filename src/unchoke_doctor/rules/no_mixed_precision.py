"""Does a GPU compute a long training in float32 throughout, though it is built for 16 bits?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from unchoke_doctor.code.training import own_node
from unchoke_doctor.rules import Case, Hit

_USED = re.compile(
    r"autocast|GradScaler|mixed_precision|mixed_float16|mixed_bfloat16|\bfp16|\bbf16|bfloat16|\.half\(|to_fp16|precision\s*=|\bamp\b|float16"
)
_TENSOR_CORES = re.compile(r"\bT4|V100|A100|A10\b|A6000|H100|H200|L4|L40|RTX|Titan V|TITAN RTX|A[2-6]000|P5000", re.IGNORECASE)
_GPU_FULL = re.compile(r"CUDA|OOM|Resource")
_LONG_S = 600.0
_TORCH = (
    "run forward pass and loss under `torch.autocast('cuda', dtype=torch.float16)`, scale the loss with `torch.amp.GradScaler()`"
)
_KERAS = (
    "call `keras.mixed_precision.set_global_policy('mixed_float16')` before the model is made, and keep the last layer in float32"
)
_FIXES = {
    "keras": _KERAS,
    "tape": _KERAS,
    "lightning": "`Trainer(precision='16-mixed')`",
    "trainer": "`TrainingArguments(fp16=True)`",
    "fastai": "`learn.to_fp16()`",
}


def check(case: Case) -> Iterator[Hit]:
    own = ((one, node) for one in case.trainings if one.kind != "yolo" and (node := own_node(case.program, one)) is not None)
    training, node = next(own, (None, None))
    if training is None or node is None or _USED.search(case.texts):
        return
    gpu, total = case.outputs.gpu, case.training_s(training)
    long = total is not None and total >= _LONG_S
    if _TENSOR_CORES.search(gpu):
        pays = long
    else:  # a GPU that is only called so may be any
        named = case.has_known_network and "cuda" in case.texts
        pays = named and gpu in ("", "GPU") and (long or total is None) and not case.outputs.on_cpu
    full = _GPU_FULL.search(case.outputs.memory) and case.has_known_network
    pays = bool(full) or (pays and (bool(case.large_network) or not case.waits_for_data))
    where = f" for a network as large as `{case.large_network}`" if case.large_network else ""
    where = f" on a {gpu}, which is built for 16 bits" if pays and gpu else where
    said = f"the training computes in float32 throughout{where}{', and its GPU ran out of memory' if full else ''}"
    yield case.hit([node], said, _FIXES.get(training.kind, _TORCH), "choke" if pays else "note")
