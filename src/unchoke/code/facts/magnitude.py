"""How large a training is, as far as the file says: one of the small sets of lessons, one of the large networks.

In comes a program, out go plain answers for rules that tell a choke from a nit.
"""

from __future__ import annotations

import ast
import re

from unchoke.code.program import Program

_SMALL_SETS = re.compile(
    r"(?:^|\.)(?:E|K|Q|USPS|Fashion|fashion_|Moving)?_?(?:MNIST|mnist|digits|CIFAR100?|cifar100?|SVHN|svhn|STL10|USPS|imdb|reuters|boston_housing)"
    r"(?:\.load_data)?$|(?:^|\.)load_(?:digits|iris|wine|breast_cancer|mnist)$"
)
_LARGE = re.compile(
    r"resnet(?:50|101|152)|resnext|wide_resnet|densenet|efficientnet|convnext|vgg(?:16|19)|inception|xception|nasnet|regnet|"
    r"vit_|vit\b|ViT|swin|deit|beit|dino|clip|unet|Unet|UNet|deeplab|fpn|FPN|maskrcnn|fasterrcnn|retinanet|segformer|bert|BERT|gpt|GPT|t5|"
    r"ResNet(?:50|101|152)|DenseNet|EfficientNet|InceptionV3|InceptionResNet|Xception|VGG(?:16|19)|NASNet|ConvNeXt",
)
_MAKERS = (
    "torchvision.models.", "timm.create_model", "segmentation_models_pytorch.", "tf.keras.applications.", "transformers.",
    "segmentation_models.",
)  # fmt: skip
_HOSTED = ("/content/", "/kaggle/", "../input/")


def trains_on_small_set(program: Program) -> bool:
    """MNIST, CIFAR and their like: an epoch takes seconds to a minute."""
    return any(map(_SMALL_SETS.search, program.calls_by_name))


def is_hosted_notebook(program: Program) -> bool:
    """Written for Colab or Kaggle: Linux, where processes are forked."""
    if not program.is_notebook:
        return False
    texts = (node.value for node in program.nodes(ast.Constant) if isinstance(node.value, str))
    told = any(text.startswith(_HOSTED) or text == "../input" for text in texts)
    return told or any(name.startswith("google.colab") for name in program.calls_by_name)


def large_network(program: Program) -> ast.Call | None:
    """The call that makes a network known to be large: by its function, or by the name it is given."""
    calls = program.calls_named(name for name in program.calls_by_name if name.startswith(_MAKERS))
    kept = (call for call in calls if program.targets(call) and "Tokenizer" not in program.text(call.func))
    return next((call for call in kept if network_named(program, call)), None)


def network_named(program: Program, made: ast.Call) -> str:
    """`efficientnet` of `timm.create_model(CFG.name)`; empty where it is none of the large ones."""
    given = [program.value(item) for item in made.args[:2]] + [program.value(word.value) for word in made.keywords]
    for text in (program.text(made), *(item for item in given if isinstance(item, str))):
        found = _LARGE.search(text)
        if found:
            return found.group(0)
    return ""
