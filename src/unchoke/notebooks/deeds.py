"""Deeds of notebook cells and the calls and shell lines they are known by. Tables only."""

from __future__ import annotations

import re

# A call by its dotted name as lint resolves it; one that begins with a dot is a method of an object whose kind is not known.
_CALLS: dict[str, tuple[str, ...]] = {
    "trains": (
        r"\.(train_on_batch|fit_generator|fit_one_cycle|fine_tune)",
        r".*[Tt]rainer\.(fit|train)",
    ),
    "computes gradients": (r"\.backward|tf\.GradientTape|torch\.autograd\.(backward|grad)",),
    "evaluates": (
        r"\.(evaluate|evaluate_generator)",
        r"sklearn\.metrics\.\w+",
        r"torchmetrics\..+",
        r".*[Tt]rainer\.(validate|test)",
        r".*Interpretation\.from_learner",
    ),
    "predicts": (r"\.(predict|predict_generator|predict_on_batch|predict_proba|get_preds)",),
    "checks every file": (r".*\bverify_images", r"\.verify"),
    "makes loaders": (
        r"torch\.utils\.data\.(DataLoader|TensorDataset)",
        r".*\.(image_dataset_from_directory|flow_from_\w+)",
        r"tf\.data\.Dataset\.\w+",
        r".*(DataLoaders|DataBlock)(\.\w+)?",
        r".*(ImageFolder|ImageDataGenerator)",
    ),
    "builds a model": (
        r"torchvision\.models\.[\w.]+",
        r"timm\.create_model",
        r"tf\.keras\.(models\.)?(Sequential|Model)",
        r"tf\.keras\.applications\.([a-z]\w*\.)?[A-Z]\w+",
        r"torch\.(hub\.load|nn\.Sequential)",
        r"segmentation_models(_pytorch)?\.[\w.]+",
        r"transformers\.\w*Model\w*\.from_pretrained",
        r".*(vision|cnn|unet)_learner",
        r"(monai\.networks|efficientnet_pytorch)\..+",
    ),
    "loads weights": (
        r"torch\.(jit\.)?load",
        r"\.(load_state_dict|load_weights)",
        r".*\.(load_model|load_learner)",
    ),
    "sets up training": (r"torch\.optim\.\w+", r"tf\.keras\.optimizers\.\w+", r"\.compile"),
    "reads tables": (
        r"(pandas|polars|geopandas)\.(read|scan)_\w+",
        r"csv\.(reader|DictReader)",
        r"numpy\.(loadtxt|genfromtxt)",
        r"json\.load",
    ),
    "reads images": (
        r"PIL\.Image\.open",
        r"cv2\.(imread|imdecode|VideoCapture)",
        r"(imageio|skimage\.io|tifffile|matplotlib\.image|matplotlib\.pyplot)\.(imread|imopen)",
        r"(rasterio|xarray|rioxarray)\.open\w*",
        r"(osgeo\.)?gdal\.Open|openslide\.OpenSlide|pydicom\.\w*read\w*|.*\.load_img",
        r"tf\.(io|image)\.decode_\w+|torchvision\.io\.\w+",
    ),
    "reads arrays": (r"numpy\.(load|memmap)|h5py\.File|zarr\.open|pickle\.load|joblib\.load",),
    "lists files": (
        r"(glob|os|tf\.io\.gfile)\.(glob|iglob|listdir|scandir|walk)",
        r"\.(glob|rglob|iterdir)",
        r".*get_image_files",
    ),
    "splits the data": (r"sklearn\.model_selection\.\w+|torch\.utils\.data\.random_split",),
    "downloads": (
        r".*\.(urlretrieve|dataset_download|download_url)",
        r"gdown\.\w+|requests\.get|wget\.download",
    ),
    "fetches a file once": (
        r".*\.(get_file|snapshot_download|hf_hub_download)|.*(untar_data|download_and_extract\w*)",
        r"torch\.hub\.load_state_dict_from_url",
    ),
    "unpacks archives": (r"\.(extractall|extract)|shutil\.unpack_archive",),
    "copies the data": (r"shutil\.copytree|.*\bcopy_tree",),
    "copies files": (r"shutil\.(copy\w*|move)",),
    "mounts a drive": (r"google\.colab\.drive\.mount",),
    "plots": (
        r"(matplotlib|seaborn|plotly|altair)\..+",
        r"\.(plot|imshow|hist|show_batch|show_results|plot_\w+)",
    ),
    "saves": (
        r"torch\.save|\.(save|save_weights|save_pretrained|to_csv|to_parquet|export)",
        r"numpy\.save\w*|(pickle|joblib|json)\.dump",
    ),
    "looks at the machine": (
        r"torch\.cuda\.(get_device_\w+|device_count|memory_summary)",
        r"tf\.config\.(experimental\.)?list_physical_devices",
        r"(psutil|platform)\.\w+",
    ),
    "frees memory": (r"gc\.collect|torch\.cuda\.empty_cache|tf\.keras\.backend\.clear_session",),
    "sets seeds": (
        r"(.*\.)?(manual_seed|manual_seed_all|set_seed|seed_everything|set_random_seed)",
        r"(numpy\.)?random\.seed",
    ),
}
_SHELL: dict[str, str] = {
    "installs packages": r"(sudo )?(python3? -m )?(pip3?|uv|conda|mamba|apt|apt-get)\s+(pip |env )?(install|update|upgrade)\b",
    "downloads": r"(wget|curl|gdown|git clone|aws s3|gsutil|rclone|kaggle|huggingface-cli download)\b",
    "unpacks archives": r"(unzip|tar|7z|gunzip|unrar)\b",
    "copies the data": r"cp\s+(-\w*[ra]\w*|.*\*)|rsync\b",
    "copies files": r"(cp|mv|ln)\b",
    "looks at the machine": r"(nvidia-smi|lscpu|free|df|nproc|python3? (--version|-V)|cat /proc/)",
    "runs a script": r"(python3?|torchrun|accelerate launch)\s+\S+",
}
ORDER = (
    "trains", "trains on features", "extracts features", "evaluates", "predicts", "installs packages", "downloads",
    "unpacks archives", "copies the data", "copies files", "fetches a file once", "mounts a drive", "runs a script",
    "writes a file", "checks every file", "decodes everything",
    "defines a dataset", "makes loaders", "defines a model", "builds a model", "defines the training",
    "defines evaluation", "loads weights", "sets up training", "reads tables", "reads images", "reads arrays",
    "lists files", "splits the data", "computes gradients", "fits", "plots", "saves", "looks at the machine", "frees memory",
    "runs shell commands", "defines functions", "defines classes", "uses magics", "has comments only",
    "is another language", "computes", "shows values", "sets seeds",
    "sets constants", "imports",
)  # fmt: skip
"""All deeds, those that tell most of a cell first."""

CALLS = tuple((deed, re.compile(f"(?:{'|'.join(patterns)})$")) for deed, patterns in _CALLS.items())
SHELL = tuple((deed, re.compile(pattern)) for deed, pattern in _SHELL.items())
