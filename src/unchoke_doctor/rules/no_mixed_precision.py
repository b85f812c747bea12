"""Does a GPU compute a long training in float32 throughout, though it is built for 16 bits?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from unchoke_doctor.code.training import Training, own_node
from unchoke_doctor.rules import Case, Hit
from unchoke_doctor.rules.workers import check as check_workers

_USED = re.compile(r"autocast|GradScaler|mixed_precision|mixed_float16|mixed_bfloat16|\bfp16|\bbf16|bfloat16|\.half\(|to_fp16|precision\s*=|\bamp\b|float16")
_TENSOR_CORES = re.compile(r"\bT4|V100|A100|A10\b|A6000|H100|H200|L4|L40|RTX|Titan V|TITAN RTX|A[2-6]000|P5000", re.IGNORECASE)
_LONG_S = 600.0
_FIXES = {
    "torch": "run the forward pass and the loss under `torch.autocast('cuda', dtype=torch.float16)` and scale the loss with `torch.amp.GradScaler()`",
    "keras": "call `keras.mixed_precision.set_global_policy('mixed_float16')` before the model is made, and keep the last layer in float32",
    "lightning": "`Trainer(precision='16-mixed')`",
    "trainer": "`TrainingArguments(fp16=True)`",
    "fastai": "`learn.to_fp16()`",
}


def check(case: Case) -> Iterator[Hit]:
    if _USED.search(case.texts) or not case.trainings:
        return
    training, node = next(((one, found) for one in case.trainings if one.kind != "yolo" and (found := own_node(case.program, one)) is not None), (None, None))
    if training is None or node is None:
        return
    gpu, total = case.outputs.gpu, case.training_s()
    pays = bool(_TENSOR_CORES.search(gpu)) and total is not None and total >= _LONG_S and not any(hit.kind == "choke" for hit in check_workers(case))
    kind, basis, evidence = case.weigh("choke" if pays else "note")
    yield Hit(node, f"the training computes in float32 throughout{f' on a {gpu}, which is built for 16 bits' if pays else ''}{case.told()}", _fix(training),
              kind, basis, evidence)  # fmt: skip


def _fix(training: Training) -> str:
    return _FIXES.get(training.kind, _FIXES["keras" if training.kind == "tape" else "torch"])
