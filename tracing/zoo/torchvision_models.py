"""Models of torchvision: classification, segmentation, detection, video and optical flow.

The constructors' own defaults apply, so inception_v3 and googlenet have their auxiliary heads
in training mode. torchvision has no choice of attention code; `attention` is not used here.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import torch
from torch import nn

from tracing.zoo.common import Request, ZooError, missing_extra, on_meta, one_line, unknown

# Height and width where it is not 224.
SIZES = {
    "inception_v3": (299, 299),
    "ssd300_vgg16": (300, 300),
    "ssdlite320_mobilenet_v3_large": (320, 320),
    "fasterrcnn_mobilenet_v3_large_320_fpn": (320, 320),
    "raft_large": (520, 960),
    "raft_small": (520, 960),
    "r3d_18": (112, 112),
    "mc3_18": (112, 112),
    "r2plus1d_18": (112, 112),
}
KIND_SIZES = {"segmentation": (520, 520), "detection": (800, 800)}
FRAMES = 16


def build(name: str, request: Request) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """Builds a torchvision model; see `tracing.zoo.build`.

    Detection models choose boxes by value, so they and their inputs (images and, for training,
    targets with two boxes per image) are on the CPU. They resize the images themselves.
    """
    builder = _entry(name)
    kind = _kind(builder)
    if kind == "quantization":
        raise ZooError(
            f"torchvision:{name} is a quantized model, which cannot be traced."
            f" Use 'torchvision:{name.removeprefix('quantized_')}'."
        )
    height, width = SIZES.get(name) or KIND_SIZES.get(kind, (224, 224))
    if request.image_size:
        height = width = request.image_size
    options = _options(builder, kind, height if request.image_size else None)
    try:
        create = partial(builder, weights=None, **options)
        model = create() if kind == "detection" else on_meta(create)
    except Exception as error:
        raise ZooError(f"torchvision cannot build '{name}': {one_line(error)}") from error
    assert isinstance(model, nn.Module)
    batch = request.batch_size
    if kind == "detection":
        return model, _detection_inputs(name, batch, height, width, request.training), {}
    images = torch.empty(batch, 3, height, width, device="meta")
    if kind == "optical_flow":
        if min(height, width) < 128 or height % 8 or width % 8:
            raise ZooError(f"{name} needs an image size of at least 128 that 8 divides.")
        return model, (images, torch.empty_like(images)), {}
    if kind == "video":
        frames = request.seq_len or FRAMES
        return model, (torch.empty(batch, 3, frames, height, width, device="meta"),), {}
    return model, (images,), {}


def names() -> list[str]:
    """All model names but the quantized ones."""
    return [name for name in _models().list_models() if not name.startswith("quantized_")]


def family(name: str) -> str:
    """The module of torchvision that defines a model."""
    return str(_entry(name).__module__).removeprefix("torchvision.models.")


def _models() -> Any:
    try:
        import torchvision.models as models
    except ImportError as error:
        raise missing_extra("torchvision") from error
    return models


def _entry(name: str) -> Any:
    models = _models()
    if name not in models.list_models():
        raise unknown("torchvision", name, names())
    return models.get_model_builder(name)


def _kind(builder: Any) -> str:
    parts = str(builder.__module__).split(".")
    return parts[2] if len(parts) == 4 else "classification"


def _options(builder: Any, kind: str, size: int | None) -> dict[str, Any]:
    """Constructor arguments: no pretrained backbone, no slow initialisation, a fixed size."""
    options: dict[str, Any] = {}
    if "weights_backbone" in inspect.signature(builder).parameters:
        options["weights_backbone"] = None
    module = str(builder.__module__).rpartition(".")[2]
    if module in ("googlenet", "inception"):
        options["init_weights"] = False
    if size is not None and kind == "classification":
        if module == "vision_transformer":
            options["image_size"] = size
        elif module == "maxvit":
            options["input_size"] = (size, size)
    return options


def _detection_inputs(
    name: str, batch: int, height: int, width: int, training: bool
) -> tuple[Any, ...]:
    images = [torch.full((3, height, width), 0.5) for _ in range(batch)]
    if not training:
        return (images,)
    third_h, third_w = height / 3, width / 3
    boxes = torch.tensor(
        [[0.0, 0.0, third_w, third_h], [third_w, third_h, 2 * third_w, 2 * third_h]]
    )
    targets = []
    for _ in range(batch):
        target = {"boxes": boxes.clone(), "labels": torch.ones(2, dtype=torch.int64)}
        if name.startswith("maskrcnn"):
            target["masks"] = torch.ones(2, height, width, dtype=torch.uint8)
        if name.startswith("keypointrcnn"):
            points = torch.ones(2, 17, 3)
            points[:, :, :2] = boxes[:, None, :2] + 1.0
            target["keypoints"] = points
        targets.append(target)
    return images, targets
