"""Models of timm, by current name or by the name an earlier release used."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from tracing.zoo.common import Request, ZooError, missing_extra, on_meta, one_line, unknown

# Names of earlier releases that timm maps to another architecture or no longer knows, as the
# current name and the arguments that give back the same network.
OLD_NAMES: dict[str, tuple[str, dict[str, Any]]] = {
    "convnext_nano_hnf": ("convnext_nano", {"head_norm_first": True}),
    "densenet121d": ("densenet121", {"stem_type": "deep"}),
    "densenet264": ("densenet264d", {"stem_type": ""}),
    "gluon_xception65": ("xception65", {}),
    "ig_resnext101_32x16d": ("resnext101_32x16d", {}),
    "ig_resnext101_32x32d": ("resnext101_32x32d", {}),
    "ig_resnext101_32x48d": ("resnext101_32x8d", {"base_width": 48}),
    "regnety_040s_gn": ("regnety_040_sgn", {}),
    "resnetv2_50d_evob": ("resnetv2_50d", {"norm_layer": "EvoNorm2dB0"}),
    "semobilevit_s": ("mobilevit_s", {"cfg_variant": "semobilevit_s"}),
    "vit_base2_patch32_256": (
        "vit_base_patch32_224",
        {"img_size": 256, "embed_dim": 896, "num_heads": 14},
    ),
    "vit_base_patch16_reg8_gap_256": ("vit_base_patch16_reg4_gap_256", {"reg_tokens": 8}),
    "vit_medium_patch16_reg4_256": (
        "vit_medium_patch16_reg4_gap_256",
        {"class_token": True, "global_pool": "token", "fc_norm": False},
    ),
}
# Beginnings of names before a release renamed all of a kind.
OLD_BEGINNINGS = {"swin_v2_cr_": "swinv2_cr_"}
# Input sizes of old names whose current name has another default.
OLD_SIZES = {"gluon_xception65": 299, "semobilevit_s": 256, "vit_base2_patch32_256": 256}
# Old names that no current network equals.
GONE: dict[str, str] = {
    "convnext_tiny_hnfd": "two releases gave the name to two different networks",
    "cspdarknet53_iabn": "it needs the in-place batch norm of the inplace_abn package",
    "cspresnext50_iabn": "it needs the in-place batch norm of the inplace_abn package",
    "densenet264d_iabn": "it needs the in-place batch norm of the inplace_abn package",
    "ese_vovnet99b_iabn": "it needs the in-place batch norm of the inplace_abn package",
}


def build(name: str, request: Request) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """Builds a timm model on the meta device; see `tracing.zoo.build`."""
    current, extra = _resolve(name)
    channels, *default = _input_size(current)
    if name in OLD_SIZES:
        default = [OLD_SIZES[name]] * 2
    size = [request.image_size] * 2 if request.image_size else default
    options = dict(extra)
    if isinstance(options.get("norm_layer"), str):
        options["norm_layer"] = getattr(_timm().layers, options["norm_layer"])
    if size != default:
        options["img_size"] = size[0]
    with _attention(request.attention):
        model = on_meta(lambda: _create(name, current, options))
    images = torch.empty(request.batch_size, channels, *size, device="meta")
    return model, (images,), {}


def names() -> list[str]:
    """Current and old model names."""
    timm = _timm()
    deprecated = timm.models._registry._deprecated_models
    return sorted({*timm.list_models(), *deprecated, *OLD_NAMES} - set(GONE))


def family(name: str) -> str:
    """The module of timm that defines a model."""
    current, _ = _resolve(name)
    entry = _timm().models.model_entrypoint(current.partition(".")[0])
    return str(entry.__module__).rpartition(".")[2]


def _timm() -> Any:
    try:
        import timm
        import timm.layers
        import timm.models
    except ImportError as error:
        raise missing_extra("timm") from error
    return timm


def _resolve(name: str) -> tuple[str, dict[str, Any]]:
    """Current name (with its pretrained tag, which fixes the input size) and extra arguments."""
    timm = _timm()
    if name in GONE:
        raise ZooError(f"timm no longer builds '{name}': {GONE[name]}.")
    if name in OLD_NAMES:
        return OLD_NAMES[name]
    for old, new in OLD_BEGINNINGS.items():
        if name.startswith(old):
            name = new + name.removeprefix(old)
    registry = timm.models._registry
    base, dot, _ = name.partition(".")
    if base in registry._deprecated_models and not dot:
        target = str(registry._deprecated_models[base])
        known = "." not in target or target in registry._model_pretrained_cfgs
        return target if known else target.partition(".")[0], {}
    if not timm.is_model(base):
        raise unknown("timm", name, names())
    if dot and name not in registry._model_pretrained_cfgs:
        tags = ", ".join(registry._model_with_tags.get(base, ())) or "none"
        raise ZooError(f"timm has no pretrained tag '{name}'. Tags of {base}: {tags}.")
    return name, {}


def _input_size(current: str) -> tuple[int, int, int]:
    config = _timm().models.get_pretrained_cfg(current)
    size = getattr(config, "input_size", None) or (3, 224, 224)
    return int(size[0]), int(size[1]), int(size[2])


def _create(name: str, current: str, options: dict[str, Any]) -> nn.Module:
    """Creates the model, with an image size only where its constructor takes one."""
    timm = _timm()
    try:
        try:
            model = timm.create_model(current, pretrained=False, **options)
        except TypeError as error:
            if "img_size" not in options or "img_size" not in str(error):
                raise
            options = {key: value for key, value in options.items() if key != "img_size"}
            model = timm.create_model(current, pretrained=False, **options)
    except Exception as error:
        size = f" at image size {options['img_size']}" if "img_size" in options else ""
        raise ZooError(f"timm cannot build '{name}'{size}: {one_line(error)}") from error
    assert isinstance(model, nn.Module)
    return model


@contextlib.contextmanager
def _attention(attention: str | None) -> Iterator[None]:
    """Sets timm's choice between fused and explicit attention while a model is built."""
    layers = _timm().layers
    before = layers.config._USE_FUSED_ATTN
    if attention is not None:
        layers.set_fused_attn(attention == "sdpa")
    try:
        yield
    finally:
        layers.config._USE_FUSED_ATTN = before
