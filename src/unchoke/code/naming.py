"""Names to what they were imported as: aliases, `from` and star imports, plain re-assignments such as `L = tf.keras.layers`.

In comes an index, out goes a dotted name for a `Name` node, or None where a variable hides the import. Functions and classes of
the file itself are not names here: they keep their own. `canonical` gives the one spelling by which rules ask: `tf.` for
tensorflow, `tf.keras.` for every Keras, `lightning.` for both packages of Lightning, `torch.utils.data.DataLoader` however
reached.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from unchoke.code.bindings import Bindings
from unchoke.code.node_index import Index

# Longest first within one library: the first that fits is taken, then the next round.
_SPELLINGS = (
    ("tensorflow.compat.v2", "tf"), ("tensorflow.compat.v1", "tf"), ("tensorflow.python", "tf"), ("tensorflow", "tf"),
    ("tf.python.keras", "tf.keras"), ("tf.keras.api", "tf.keras"), ("keras.api", "tf.keras"), ("keras.src", "tf.keras"),
    ("tf_keras", "tf.keras"), ("keras", "tf.keras"),
    ("tf.keras.preprocessing.image_dataset_from_directory", "tf.keras.utils.image_dataset_from_directory"),
    ("tf.keras.utils.load_img", "tf.keras.preprocessing.image.load_img"),
    ("tf.keras.utils.img_to_array", "tf.keras.preprocessing.image.img_to_array"),
    ("tf.keras.utils.data_utils.Sequence", "tf.keras.utils.Sequence"), ("tf.gfile", "tf.io.gfile"),
    ("pytorch_lightning", "lightning"), ("lightning.pytorch", "lightning"), ("lightning_fabric", "lightning.fabric"),
    ("torch.utils.data.dataloader", "torch.utils.data"), ("torch.utils.data.dataset", "torch.utils.data"),
    ("torch.utils.data.sampler", "torch.utils.data"), ("torch.autograd.grad_mode", "torch"),
    ("torch.autograd.no_grad", "torch.no_grad"), ("torch.autograd.inference_mode", "torch.inference_mode"),
    ("torch.multiprocessing", "multiprocessing"), ("multiprocess", "multiprocessing"),
    ("multiprocessing.pool.Pool", "multiprocessing.Pool"), ("multiprocessing.context", "multiprocessing"),
    ("torchvision.transforms.transforms", "torchvision.transforms"),
    ("torchvision.datasets.folder.ImageFolder", "torchvision.datasets.ImageFolder"), ("imageio.v2", "imageio"),
    ("imageio.v3", "imageio"), ("posixpath", "os.path"), ("ntpath", "os.path"), ("path.Path", "pathlib.Path"), ("dill", "pickle"),
    ("cPickle", "pickle"), ("sklearn.externals.joblib", "joblib"),
)  # fmt: skip

_TORCH = """
    device load save no_grad enable_grad inference_mode set_grad_enabled tensor from_numpy zeros ones full rand randn randint
    zeros_like ones_like cat stack compile manual_seed nn optim utils cuda autograd autocast float32 float16 bfloat16 int64 long
    channels_last sigmoid softmax argmax sum mean max min randperm arange linspace Tensor backends jit hub is_tensor empty
"""
_NN = """
    Module Sequential ModuleList Linear Conv2d Conv1d Conv3d BatchNorm2d BatchNorm1d LayerNorm GroupNorm InstanceNorm2d ReLU GELU
    LeakyReLU Sigmoid Softmax Dropout Dropout2d MaxPool2d AvgPool2d AdaptiveAvgPool2d Flatten Identity Embedding LSTM GRU
    ConvTranspose2d Upsample CrossEntropyLoss BCELoss BCEWithLogitsLoss MSELoss L1Loss SmoothL1Loss NLLLoss HuberLoss Parameter
    DataParallel functional init
"""
_TRANSFORMS = """
    Compose Resize CenterCrop RandomCrop RandomResizedCrop RandomHorizontalFlip RandomVerticalFlip RandomRotation RandomAffine
    RandomPerspective ColorJitter GaussianBlur ElasticTransform RandAugment AutoAugment TrivialAugmentWide AugMix ToTensor
    ToPILImage Normalize Lambda RandomApply RandomChoice RandomErasing Grayscale RandomGrayscale Pad FiveCrop TenCrop
    InterpolationMode RandomEqualize RandomSolarize RandomPosterize RandomInvert PILToTensor ConvertImageDtype v2 functional
"""
_KERAS = """
    Input Model Sequential layers optimizers losses callbacks applications metrics utils models preprocessing backend
    regularizers initializers datasets activations constraints mixed_precision
"""
_LAYERS = """
    Input Dense Dropout Flatten Activation Conv2D Conv1D Conv3D SeparableConv2D DepthwiseConv2D Conv2DTranspose MaxPooling2D
    MaxPool2D AveragePooling2D GlobalAveragePooling2D GlobalMaxPooling2D BatchNormalization LayerNormalization ReLU LeakyReLU
    Softmax Add Concatenate concatenate add multiply Multiply Reshape Lambda LSTM GRU Embedding Rescaling Resizing RandomFlip
    RandomRotation RandomZoom RandomContrast RandomTranslation RandomBrightness RandomCrop UpSampling2D ZeroPadding2D Cropping2D
    SpatialDropout2D GaussianNoise Permute RepeatVector TimeDistributed Bidirectional Normalization CenterCrop
"""
_CALLBACKS = """
    ModelCheckpoint EarlyStopping ReduceLROnPlateau CSVLogger TensorBoard BackupAndRestore LearningRateScheduler Callback
    TerminateOnNaN LambdaCallback History
"""
_RESNETS = (
    "resnet18 resnet34 resnet50 resnet101 resnet152 vgg16_bn vgg19_bn densenet121 densenet169 efficientnet_b0 squeezenet1_1"
)
_FASTAI = """
    ImageDataLoaders DataBlock DataLoaders Learner vision_learner cnn_learner unet_learner aug_transforms get_image_files
    verify_images ClassificationInterpretation accuracy error_rate Resize RandomResizedCrop ImageBlock CategoryBlock MaskBlock
    RandomSplitter GrandparentSplitter parent_label get_y load_learner PILImage SaveModelCallback CSVLogger EarlyStoppingCallback
    DataLoader Dataset Datasets TfmdDL untar_data L Normalize imagenet_stats CrossEntropyLossFlat Dice SegmentationDataLoaders
    parallel
"""


class Naming:
    """Which import a name stands for, at a place."""

    def __init__(self, index: Index, bindings: Bindings) -> None:
        self._index = index
        self._bindings = bindings
        self._imports: dict[str, dict[ast.AST | None, list[tuple[int, str]]]] = {}  # by name and scope: place and target
        self._stars: list[str] = []
        for node in index.listed((ast.Import, ast.ImportFrom)):
            for name, target in _imported(node):
                if name == "*":
                    self._stars.append(canonical(target))
                else:
                    self._add(name, node, canonical(target))
        definitions = index.listed((ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) if self._stars else []
        self._defined = {node.name for node in definitions}  # type: ignore[attr-defined]
        self._read_aliases()

    def _add(self, name: str, node: ast.AST, target: str) -> None:
        by_scope = self._imports.setdefault(name, {})
        by_scope.setdefault(self._index.scope(node), []).append((self._index.number[node], target))

    def _read_aliases(self) -> None:
        """`layers = keras.layers` and `imread = cv2.imread` go on meaning the library."""
        for node in self._index.listed((ast.Assign,)):
            if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
                continue
            target = self.dotted(node.value) if isinstance(node.value, ast.Name | ast.Attribute) else None
            if target and "." in target and not target[0].isupper():
                self._add(node.targets[0].id, node, target)

    def dotted(self, node: ast.expr) -> str | None:
        """The full dotted name of a name or attribute chain that begins at an import, else None."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        root = self.resolve(node)
        if root is None:
            return None
        return canonical(".".join([root, *reversed(parts)])) if parts else root

    def resolve(self, node: ast.Name) -> str | None:
        """What the name was imported as, at this place in the program."""
        name = node.id
        imports = self._imports.get(name, {})
        if not imports and not self._stars:
            return None
        scope: ast.AST | None = self._index.scope(node)
        in_function = scope is not None
        while scope is not None:
            if scope in imports:
                return imports[scope][-1][1]
            if self._variables(name, scope):
                return None
            scope = self._index.scope(scope)
        variables = self._variables(name, None)
        if None not in imports:
            starred = (_STARS[module].get(name) for module in reversed(self._stars) if module in _STARS)
            return None if variables or name in self._defined else next(filter(None, starred), None)
        before = [item for item in imports[None] if item[0] < self._index.number[node]]
        order, target = before[-1] if before and not in_function else imports[None][-1]
        aliases = {at for at, _ in imports[None]}
        hiding = (at for at in variables if at > order and (in_function or at < self._index.number[node]) and at not in aliases)
        return None if any(hiding) else target

    def _variables(self, name: str, scope: ast.AST | None) -> list[int]:
        """Where the name is given something else than an import in this scope, comprehensions left out."""
        other = (ast.comprehension, ast.Import, ast.ImportFrom, ast.ExceptHandler)
        return [item.order for item in self._bindings.within(name, scope) if not isinstance(item.node, other)]


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Each name an import statement binds, and what it stands for."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0], alias.name.split(".")[0])
    elif isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            yield ("*", module) if alias.name == "*" else (alias.asname or alias.name, f"{module}.{alias.name}")


def _of(module: str, names: str) -> dict[str, str]:
    return {name: f"{module}.{name}" for name in names.split()}


_PLAIN = {
    "torch": "torch",
    "np": "numpy",
    "pd": "pandas",
    "plt": "matplotlib.pyplot",
    "nn": "torch.nn",
    "F": "torch.nn.functional",
}
_STARS: dict[str, dict[str, str]] = {
    "torch": _of("torch", _TORCH),
    "torch.nn": _of("torch.nn", _NN),
    "torch.optim": _of("torch.optim", "Adam AdamW SGD RMSprop Adagrad lr_scheduler NAdam RAdam LBFGS"),
    "torch.utils.data": _of(
        "torch.utils.data",
        "Dataset DataLoader IterableDataset TensorDataset Subset ConcatDataset random_split WeightedRandomSampler "
        "SubsetRandomSampler RandomSampler SequentialSampler get_worker_info default_collate",
    ),
    "torchvision": _of("torchvision", "models transforms datasets utils io ops"),
    "torchvision.transforms": _of("torchvision.transforms", _TRANSFORMS),
    "torchvision.transforms.v2": _of("torchvision.transforms.v2", _TRANSFORMS),
    "torchvision.models": _of("torchvision.models", _RESNETS + " vgg16 mobilenet_v2 mobilenet_v3_large convnext_tiny vit_b_16"),
    "torchvision.datasets": _of("torchvision.datasets", "ImageFolder DatasetFolder VisionDataset CIFAR10 CIFAR100 MNIST"),
    "albumentations": _of(
        "albumentations",
        "Compose OneOf Resize RandomCrop CenterCrop RandomResizedCrop HorizontalFlip VerticalFlip Flip Rotate ShiftScaleRotate "
        "Affine Perspective ElasticTransform GridDistortion OpticalDistortion GaussianBlur MotionBlur MedianBlur Blur CLAHE "
        "RandomBrightnessContrast HueSaturationValue ColorJitter GaussNoise ISONoise RandomShadow RandomRain RandomFog Normalize "
        "CoarseDropout Transpose RandomRotate90 PadIfNeeded LongestMaxSize SmallestMaxSize Lambda RandomGamma",
    ),
    "tf": _of("tf", "data io image keras device function GradientTape config random debugging py_function numpy_function"),
    "tf.keras": _of("tf.keras", _KERAS),
    "tf.keras.layers": _of("tf.keras.layers", _LAYERS),
    "tf.keras.models": _of("tf.keras.models", "Model Sequential load_model model_from_json clone_model"),
    "tf.keras.callbacks": _of("tf.keras.callbacks", _CALLBACKS),
    "tf.keras.optimizers": _of("tf.keras.optimizers", "Adam SGD RMSprop AdamW Nadam Adagrad Adamax schedules"),
    "tf.keras.applications": _of(
        "tf.keras.applications",
        "ResNet50 VGG16 VGG19 InceptionV3 Xception MobileNet MobileNetV2 MobileNetV3Small MobileNetV3Large DenseNet121 "
        "EfficientNetB0 EfficientNetB3 EfficientNetB4 EfficientNetV2B0 ConvNeXtTiny resnet50 vgg16 efficientnet mobilenet_v2",
    ),
    "tf.keras.utils": _of("tf.keras.utils", "Sequence PyDataset to_categorical image_dataset_from_directory plot_model"),
    "tf.keras.preprocessing.image": _of(
        "tf.keras.preprocessing.image", "ImageDataGenerator load_img img_to_array array_to_img save_img "
        "image_dataset_from_directory"
    ),
    "fastai.vision.all": {
        **_of("fastai.vision.all", _FASTAI), **_PLAIN, **_of("torchvision.models", _RESNETS),
        "Path": "pathlib.Path", "partial": "functools.partial", "tensor": "fastai.vision.all.tensor", "os": "os", "math": "math",
        "Image": "PIL.Image", "PIL": "PIL", "random": "random", "json": "json", "pickle": "pickle", "optim": "torch.optim",
        "no_grad": "torch.no_grad", "cv2": "cv2", "re": "re", "time": "time", "shutil": "shutil", "glob": "glob",
        "Module": "fastai.vision.all.Module", "Tensor": "torch.Tensor", "warnings": "warnings", "models": "torchvision.models",
    },
    "os": _of("os", "listdir scandir walk path makedirs stat replace rename remove cpu_count environ getcwd system"),
    "os.path": _of("os.path", "exists join isfile isdir getsize basename dirname splitext getmtime"),
    "glob": _of("glob", "glob iglob"),
    "pathlib": _of("pathlib", "Path PurePath"),
    "PIL": _of("PIL", "Image ImageOps ImageDraw ImageFile ImageEnhance ImageFilter"),
    "cv2": _of("cv2", "imread imdecode imwrite resize cvtColor COLOR_BGR2RGB VideoCapture INTER_AREA"),
    "numpy": _of("numpy", "load save savez savez_compressed array stack zeros ones concatenate asarray random memmap"),
    "multiprocessing": _of("multiprocessing", "Pool Process Queue cpu_count set_start_method get_context Lock Manager"),
    "transformers": _of(
        "transformers", "Trainer TrainingArguments AutoModel AutoModelForImageClassification AutoImageProcessor "
        "ViTForImageClassification pipeline",
    ),
}  # fmt: skip
_STARS["fastai.vision"] = _STARS["fastai"] = _STARS["fastai.basics"] = _STARS["fastai.vision.all"]
_STARS["fastbook"] = _STARS["fastai.vision.all"]


@lru_cache(maxsize=65_536)
def canonical(name: str) -> str:
    """The one spelling of a dotted name."""
    for written, wanted in _SPELLINGS:
        if name == written or name.startswith(written + "."):
            name = wanted + name[len(written) :]
    return name.removeprefix("builtins.")
