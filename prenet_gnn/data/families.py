"""Which models count as the same architecture, and which as relatives.

A model of a training set must not come back in the test set under another library's name, another
spelling or another framework version. `architecture` names a model independently of the library;
`family_of` names the group (the timm source module) that a split by architecture keeps whole.
"""

from __future__ import annotations

import re
from functools import cache

import pandas as pd

from prenet_gnn.errors import DataError

# torchvision models that are the same networks as a timm model of another name.
_TIMM_NAMES = {
    "mnasnet0_5": "mnasnet_050",
    "mnasnet0_75": "mnasnet_075",
    "mnasnet1_0": "mnasnet_100",
    "mnasnet1_3": "mnasnet_140",
    "mobilenet_v2": "mobilenetv2_100",
    "mobilenet_v3_large": "mobilenetv3_large_100",
    "mobilenet_v3_small": "mobilenetv3_small_100",
    "bert-large-uncased": "bert_large",
}
# Families of models that timm does not have, or has under another name, by the head of the name.
_FAMILIES_BY_HEAD = (
    ("densenet", "densenet"),
    ("mnasnet", "efficientnet"),
    ("efficientnet", "efficientnet"),
    ("mobilenet_v2", "efficientnet"),
    ("mobilenet_v3", "mobilenetv3"),
    ("resnet", "resnet"),
    ("resnext", "resnet"),
    ("wide_resnet", "resnet"),
    ("regnet", "regnet"),
    ("shufflenet", "shufflenet"),
    ("squeezenet", "squeezenet"),
    ("vgg", "vgg"),
    ("vit", "vision_transformer"),
    ("swin", "swin_transformer"),
    ("convnext", "convnext"),
    ("csp", "cspnet"),
    ("ese_vovnet", "vovnet"),
    ("inception_v3", "inception_v3"),
    ("alexnet", "alexnet"),
    ("googlenet", "googlenet"),
    ("maxvit", "maxxvit"),
    ("maskrcnn", "detection"),
    ("bert", "bert"),
    ("gpt", "gpt2"),
    ("opt", "opt"),
    ("switch", "switch_transformers"),
)


def architecture(library: str, model: str) -> str:
    """One name per network whatever library, weights tag, head or old prefix it comes with."""
    name = model.lower().rsplit("/", 1)[-1].split("@")[0].split(".")[0]
    name = re.sub(r"^(tv|gluon|ssl|swsl|ig|legacy|torchvision)_", "", name)
    return _TIMM_NAMES.get(name, name) if library in ("torchvision", "transformers") else name


@cache
def family_of(library: str, model: str) -> str:
    """Group of a model for unseen architectures: its timm module, or the group of its name.

    A model outside the known groups forms a group of its own.

    Raises:
        DataError: timm is not installed, or knows neither the model nor a group for its name.
    """
    name = model.lower().rsplit("/", 1)[-1]
    by_head = next((group for head, group in _FAMILIES_BY_HEAD if name.startswith(head)), "")
    if library != "timm":
        return by_head or name
    from tracing import TraceError, zoo

    try:
        return str(zoo.module_family(f"timm:{model}"))
    except TraceError as error:
        # Names that timm has dropped (the in-place batch norm variants) still have relatives.
        if by_head and "no longer builds" in str(error):
            return by_head
        raise DataError(f"no family for timm model '{model}': {error}") from None


def families(frame: pd.DataFrame) -> pd.Series:
    """The group of every row."""
    pairs = zip(frame["library"], frame["model"], strict=True)
    return pd.Series([family_of(library, model) for library, model in pairs], index=frame.index)


def architectures(frame: pd.DataFrame) -> pd.Series:
    """The library-independent model name of every row."""
    pairs = zip(frame["library"], frame["model"], strict=True)
    return pd.Series([architecture(library, model) for library, model in pairs], index=frame.index)
