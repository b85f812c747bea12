"""What a program runs that was not read: cells that do not parse or are no Python, modules and scripts that lie elsewhere.

In comes a source, out come `UnreadCode`s with their reason. Whoever claims that something is absent (no checkpoint, never freed)
asks here first: what was not read may do it. Libraries that everybody knows do not count, nor do pages of HTML.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from unchoke.code.magics import SHELL_CELLS, script_runs
from unchoke.code.source import Cell, SourceFile, language_name

UnreadKind = Literal["cell", "language", "star", "module", "run", "process"]
ANY_NAME = "*"
# Cells that are shown, not run, and those that only write a file.
_SHOWN = frozenset({"html", "javascript", "js", "latex", "markdown", "svg", "css", "mermaid", "dot", "writefile", "file",
                    "appendfile", "writetemplate", "skip", "false", "ai"})  # fmt: skip
_LIBRARY_NAMES = """
    torch torchvision torchaudio torchtext torchmetrics torchdata torchsummary torchinfo torchviz torchgeo timm
    lightning pytorch_lightning lightning_fabric lightning_utilities fastai fastbook fastcore fastprogress ignite
    accelerate transformers tokenizers huggingface_hub diffusers peft safetensors einops kornia monai albumentations
    imgaug segmentation_models segmentation_models_pytorch efficientnet_pytorch pretrainedmodels detectron2 mmcv mmdet
    mmseg mmengine ultralytics tensorflow tensorflow_datasets tensorflow_hub tensorflow_addons tensorflow_probability
    keras keras_cv keras_tuner keras_hub tf_keras jax jaxlib flax optax haiku chex mxnet paddle onnx onnxruntime theano
    numpy scipy pandas polars pyarrow sklearn skimage cv2 PIL imageio tifffile matplotlib mpl_toolkits seaborn plotly
    altair bokeh pylab tqdm yaml toml h5py zarr dask xarray rasterio rioxarray shapely geopandas fiona pyproj osgeo gdal
    pydicom nibabel SimpleITK openslide medpy lmdb webdataset ffcv nvidia cupy cudf cuml numba joblib dill cloudpickle
    requests bs4 urllib3 boto3 botocore gdown wget kaggle google fsspec s3fs gcsfs psutil pynvml gpustat IPython
    ipywidgets ipykernel jupyter nbformat wandb mlflow tensorboard tensorboardX comet_ml neptune visdom hydra omegaconf
    absl click typer rich fire gin ray optuna hyperopt skopt xgboost lightgbm catboost statsmodels nltk spacy gensim gym
    gymnasium stable_baselines3 networkx sympy patsy umap hdbscan faiss annoy shap lime captum gradio streamlit flask
    fastapi pydantic attr attrs six future past pytest hypothesis setuptools pkg_resources packaging typing_extensions
    unchoke cython pyximport decord av moviepy librosa soundfile pycocotools cityscapesscripts apex deepspeed horovod
    bitsandbytes xformers triton prettytable tabulate termcolor colorama loguru dotenv certifi regex ftfy open_clip
"""
_LIBRARIES = frozenset(_LIBRARY_NAMES.split())


@dataclass(frozen=True)
class UnreadCode:
    """One piece, with `reason` in words. `names` are those that it brings into the program; `*` stands for any.

    `cell` does not parse · `language` is no Python · `star`: `from m import *` · `module` is imported by name · `run`: `%run`,
    with the notebook's own variables · `process`: `!python`, which shares nothing but files.
    """

    kind: UnreadKind
    name: str
    reason: str
    cell: int | None = None
    line: int | None = None
    names: tuple[str, ...] = ()


def find_unread(source: SourceFile) -> tuple[UnreadCode, ...]:
    """Everything in the order of the file, a module or script once for each line that names it."""
    return tuple(piece for cell in source.cells if cell.kind == "code" for piece in _in_cell(source, cell))


def _in_cell(source: SourceFile, cell: Cell) -> Iterator[UnreadCode]:
    if cell.problem is not None:
        yield UnreadCode("cell", "", cell.problem.message, cell.number, cell.problem.line, (ANY_NAME,))
    elif not cell.executed and cell.text.strip() and cell.language not in _SHOWN | SHELL_CELLS:
        language = language_name(cell.language)
        yield UnreadCode("language", language, f"{language} is not read", cell.number, 1, (ANY_NAME,))
    for run in script_runs(cell.text, cell.language) if cell.number is not None and cell.language not in _SHOWN else ():
        if run.name not in source.known:
            kind: UnreadKind = "run" if run.shares else "process"
            reason = f"{run.name} is run here and was not read"
            yield UnreadCode(kind, run.name, reason, cell.number, run.line, (ANY_NAME,) if run.shares else ())
    for module, line, names in _imports(cell):
        if module not in source.known and not is_library(module):
            kind = "star" if names == (ANY_NAME,) else "module"
            yield UnreadCode(kind, module, f"{module} is imported here and was not read", cell.number, line, names)


def _imports(cell: Cell) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """Each module with its line and the names it brings."""
    for node in cell.imports:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, (alias.asname or alias.name.partition(".")[0],)
        else:
            yield module_name(node), node.lineno, tuple(alias.asname or alias.name for alias in node.names)


def module_name(node: ast.ImportFrom) -> str:
    """`.data` for `from .data import x`, as it is written."""
    return "." * node.level + (node.module or "")


def is_library(module: str) -> bool:
    """Is it of the standard library, or one that everybody knows? Relative imports never are."""
    top = module.partition(".")[0]
    return top in sys.stdlib_module_names or top in _LIBRARIES
