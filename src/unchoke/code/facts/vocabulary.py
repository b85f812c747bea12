"""The words that tell what code does: calls that read, decode, list and draw, by canonical name; names that tell a role.

Tables, and three questions about names: their words, whether they speak of training or evaluation, whether a function evaluates.
"""

from __future__ import annotations

import re
from typing import Literal

DECODERS = frozenset(
    {"PIL.Image.open", "cv2.imread", "cv2.imdecode", "imageio.imread", "imageio.volread", "imageio.mimread", "skimage.io.imread",
     "torchvision.io.read_image", "torchvision.io.decode_image", "torchvision.io.decode_jpeg", "torchvision.io.decode_png",
     "torchvision.io.image.read_image", "torchvision.datasets.folder.default_loader", "torchvision.datasets.folder.pil_loader",
     "tf.io.decode_jpeg", "tf.io.decode_png", "tf.io.decode_image", "tf.io.decode_bmp", "tf.io.decode_gif",
     "tf.io.decode_and_crop_jpeg", "tf.image.decode_jpeg", "tf.image.decode_png", "tf.image.decode_image", "tf.image.decode_bmp",
     "tf.image.decode_gif", "tf.image.decode_and_crop_jpeg", "tfio.image.decode_dicom_image", "tensorflow_io.image.decode_tiff",
     "tf.keras.preprocessing.image.load_img", "pydicom.dcmread", "pydicom.read_file", "dicom.read_file", "SimpleITK.ReadImage",
     "nibabel.load", "matplotlib.pyplot.imread", "matplotlib.image.imread", "tifffile.imread", "simplejpeg.decode_jpeg",
     "jpeg4py.JPEG", "rawpy.imread", "mahotas.imread", "scipy.misc.imread", "scipy.ndimage.imread", "kornia.io.load_image",
     "pyvips.Image.new_from_file", "pyvips.Image.thumbnail", "fastai.vision.all.PILImage.create",
     "fastai.vision.core.load_image", "accimage.Image", "turbojpeg.decode", "mmcv.imread", "mmcv.imfrombytes",
     "monai.transforms.LoadImage", "Image.open", "decord.VideoReader", "torchvision.io.read_video", "itk.imread", "pyspng.load",
     "nvjpeg.decode", "cv2.imreadmulti", "imageio.get_reader"}
)  # fmt: skip
RASTER_OPENERS = frozenset(
    {"rasterio.open", "osgeo.gdal.Open", "gdal.Open", "rioxarray.open_rasterio", "tifffile.TiffFile", "h5py.File",
     "tables.open_file", "zarr.open", "netCDF4.Dataset", "xarray.open_dataset", "xarray.open_mfdataset", "xarray.open_rasterio",
     "xarray.open_zarr", "xarray.open_dataarray", "openslide.OpenSlide", "openslide.open_slide", "zipfile.ZipFile",
     "tarfile.open", "lmdb.open", "lmdb.Environment", "pyvips.Image.new_from_file", "aicsimageio.AICSImage", "tables.openFile"}
)  # fmt: skip
RASTER_READERS = frozenset({"rasterio.open", "osgeo.gdal.Open", "gdal.Open", "rioxarray.open_rasterio", "openslide.OpenSlide"})
STATS = frozenset(
    {"os.path.exists", "os.path.isfile", "os.path.isdir", "os.path.getsize", "os.path.getmtime", "os.path.lexists",
     "os.path.islink", "os.stat", "os.lstat", "os.access", "tf.io.gfile.exists", "tf.io.gfile.isdir", "tf.io.gfile.stat",
     "tf.io.gfile.Exists", "tf.io.gfile.IsDirectory"}
)  # fmt: skip
STAT_METHODS = frozenset({"exists", "is_file", "is_dir", "stat", "lstat", "is_symlink"})
LISTERS = frozenset(
    {"glob.glob", "glob.iglob", "os.listdir", "os.scandir", "os.walk", "tf.io.gfile.glob", "tf.io.gfile.listdir",
     "tf.io.gfile.walk", "tf.io.matching_files", "fnmatch.filter"}
)  # fmt: skip
LIST_METHODS = frozenset({"glob", "rglob", "iterdir", "walk"})
# Data sets of libraries that decode an image for each sample.
DECODING_DATASETS = frozenset(
    {"ImageFolder", "DatasetFolder", "ImageDataset", "Food101", "Flowers102", "OxfordIIITPet", "StanfordCars", "ImageNet",
     "CocoDetection", "CocoCaptions", "VOCSegmentation", "VOCDetection", "Cityscapes", "CelebA", "Caltech101", "Caltech256",
     "FGVCAircraft", "Places365", "INaturalist", "SUN397", "EuroSAT", "DTD", "Country211", "LFWPeople",
     "LSUN"}
)  # fmt: skip
TABLE_PARSERS = frozenset(
    {"pandas.read_csv", "pandas.read_table", "pandas.read_excel", "pandas.read_json", "pandas.read_parquet", "pandas.read_xml",
     "pandas.read_feather", "pandas.read_pickle", "polars.read_csv", "polars.read_parquet", "csv.reader", "csv.DictReader",
     "json.load", "json.loads", "yaml.safe_load", "yaml.load", "xml.etree.ElementTree.parse", "lxml.etree.parse",
     "geopandas.read_file", "numpy.genfromtxt", "numpy.loadtxt"}
)  # fmt: skip
RANDOM_TRANSFORMS = frozenset(
    {"RandomHorizontalFlip", "RandomVerticalFlip", "RandomRotation", "RandomAffine", "RandomPerspective", "RandomCrop",
     "RandomResizedCrop", "RandomErasing", "ColorJitter", "GaussianBlur", "RandAugment", "AutoAugment", "TrivialAugmentWide",
     "AugMix", "RandomApply", "RandomChoice", "RandomGrayscale", "RandomInvert", "RandomSolarize", "RandomPosterize",
     "RandomEqualize", "RandomAutocontrast", "RandomAdjustSharpness", "ElasticTransform", "HorizontalFlip", "VerticalFlip",
     "Flip", "Rotate", "RandomRotate90", "Transpose", "ShiftScaleRotate", "Affine", "Perspective", "GridDistortion",
     "OpticalDistortion", "MotionBlur", "MedianBlur", "CLAHE", "RandomBrightnessContrast", "HueSaturationValue", "GaussNoise",
     "ISONoise", "RandomShadow", "RandomRain", "RandomFog", "CoarseDropout", "Cutout", "RandomGamma", "RGBShift", "D4", "OneOf",
     "SomeOf", "RandomSizedCrop", "PiecewiseAffine", "Fliplr", "Flipud", "RandomFlip", "RandomZoom", "RandomContrast",
     "RandomBrightness", "RandomTranslation", "RandomHeight", "RandomWidth", "random_flip_left_right", "random_flip_up_down",
     "random_brightness", "random_contrast", "random_saturation", "random_hue", "random_crop",
     "stateless_random_flip_left_right", "stateless_random_flip_up_down", "stateless_random_crop", "stateless_random_brightness",
     "random_rotation", "random_shift", "random_zoom", "random_shear", "random_jpeg_quality", "aug_transforms",
     "RandomShortestSize", "RandomZoomOut", "RandomPhotometricDistort", "RandomIoUCrop", "MixUp", "CutMix", "RandFlip",
     "RandRotate", "RandZoom", "RandRotate90", "RandFlipd", "RandRotate90d", "RandAffine", "RandAffined", "ToSepia", "Sharpen",
     "Emboss", "PixelDropout", "GridDropout", "ChannelShuffle", "ChannelDropout", "Posterize", "Solarize", "Equalize",
     "RandomGridShuffle", "SafeRotate"}
)  # fmt: skip
RANDOM_GENERATOR_OPTIONS = frozenset(
    {"rotation_range", "width_shift_range", "height_shift_range", "shear_range", "zoom_range", "horizontal_flip", "vertical_flip",
     "brightness_range", "channel_shift_range"}
)  # fmt: skip
Role = Literal["train", "eval", "unknown"]
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_TRAIN = frozenset(
    {"train", "training", "trn", "tr", "trainloader", "trainset", "traindl", "fit", "trains", "traindata", "once"} - {"once"}
)
_EVAL = frozenset(
    {"val", "valid", "validation", "vali", "va", "vl", "test", "testing", "tst", "te", "dev", "eval", "evaluation", "holdout",
     "hold", "heldout", "held", "infer", "inference", "pred", "predict", "submission", "sub", "valloader", "testloader",
     "valset", "testset", "check", "query", "oof", "validloader", "unseen"}
)  # fmt: skip
_EVALUATING = re.compile(
    r"^_*(?:run_|do_|get_|compute_|calc_|full_|make_|my_|one_)?(?:eval|valid|val(?:_|$|\d)|test(?!_?loader|_?data|_?set|_?dl)|predict|infer|score(?:_|$)|submi)",
    re.IGNORECASE,
)
_EVALUATING_INSIDE = re.compile(
    r"_(?:eval|evaluate|evaluation|val|valid|validate|validation|test|predict|prediction|inference)(?:_|$)", re.IGNORECASE
)


def words(name: str) -> list[str]:
    """`valLoader_2` to `val`, `loader`, `2`."""
    return [word.lower() for word in _WORDS.findall(name)]


def role_of(name: str) -> Role:
    """What a variable, function or folder name says it is for."""
    found = words(name)
    for word in found:
        if word in _TRAIN:
            return "train"
        if word in _EVAL:
            return "eval"
    for word in found:
        if word.startswith("train"):
            return "train"
        if word.startswith(("val", "test")) and word not in ("value", "values"):
            return "eval"
    return "unknown"


def is_evaluating_name(name: str) -> bool:
    """Does a function's name say that it evaluates: eval*, valid*, test*, predict*, infer*?"""
    if name.lower().endswith(("loader", "_dl", "_data", "_set", "dataset", "_df", "_split")):
        return False
    if role_of(name) == "train" and not name.lower().startswith(("eval", "valid", "test", "predict", "infer")):
        return False
    return bool(_EVALUATING.match(name) or _EVALUATING_INSIDE.search(name))
