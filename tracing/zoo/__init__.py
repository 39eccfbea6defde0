"""Builds models by name on the meta device: no weights, no download, no memory.

A spec is `timm:NAME`, `torchvision:NAME`, `transformers:NAME_OR_CONFIG.json` or `file.py:factory`.

    model, args, kwargs = build("timm:resnet50", batch_size=64)

Some leave the meta device, because their forward pass reads values: detection models of
torchvision, a few types of transformers (`transformers_models.READ_VALUES`) and, where its code
needs it, a user's own factory are built on the CPU.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from tracing.zoo.common import Request, ZooError, offline, suggest

if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from torch import nn

LIBRARIES = ("timm", "torchvision", "transformers")

__all__ = ["LIBRARIES", "ZooError", "build", "module_family", "names"]


def build(
    spec: str,
    batch_size: int = 8,
    image_size: int | None = None,
    seq_len: int | None = None,
    mode: str = "train",
    attention: str | None = None,
) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """Builds a model with example inputs.

    Args:
        spec: Which model; see the module's text.
        batch_size: Samples per iteration.
        image_size: Height and width of the images; None takes the model's own default.
        seq_len: Tokens per sample, frames per clip or samples of sound; None takes a default.
        mode: `train` (training mode, labels where the model computes its loss) or `infer`.
        attention: `eager` or `sdpa` asks for that attention code where the library offers a
            choice (timm, transformers); None takes the library's default.

    Returns:
        The model in the asked mode, its positional and its keyword arguments.

    Raises:
        ZooError: The spec or an argument is wrong, or the model cannot be built here.
    """
    request = Request(batch_size, image_size, seq_len, mode, attention)
    library, name = _split(spec)
    with offline():
        model, args, kwargs = _builder(library).build(name, request)
    model.train(mode == "train")
    return model, args, kwargs


def names(prefix: str = "") -> list[str]:
    """Lists the specs that start with a prefix, such as `timm:resnet`; sorted."""
    library, _, _ = prefix.partition(":")
    wanted = [each for each in LIBRARIES if each.startswith(library) or each == library]
    found: list[str] = []
    with offline():
        for each in wanted:
            try:
                found += [f"{each}:{name}" for name in _builder(each).names()]
            except ZooError:
                if ":" in prefix:
                    raise
    return sorted(spec for spec in found if spec.startswith(prefix))


def module_family(spec: str) -> str:
    """Names the group of closely related models that a spec belongs to.

    Models of one family share their source file (timm, torchvision), their model type
    (transformers) or the user's file, so splits by family keep near twins together.
    """
    library, name = _split(spec)
    with offline():
        return str(_builder(library).family(name))


def _builder(library: str) -> ModuleType:
    """The module that builds a library's models; loads nothing of the other libraries."""
    name = "user_file" if library == "file" else f"{library}_models"
    return importlib.import_module(f"tracing.zoo.{name}")


def _split(spec: str) -> tuple[str, str]:
    if not isinstance(spec, str) or not spec.strip():
        raise ZooError("The model spec is empty. Write for example 'timm:resnet50'.")
    spec = spec.strip()
    library, colon, name = spec.partition(":")
    if library in LIBRARIES and colon:
        if not name:
            raise ZooError(f"'{spec}' names no model. Write for example '{library}:NAME'.")
        return library, name
    if spec.endswith(".py") or ".py:" in spec:
        return "file", spec
    if not colon:
        raise ZooError(f"'{spec}' names no library. {_forms(spec)}")
    raise ZooError(f"Library '{library}' is not known.{suggest(library, LIBRARIES)} {_forms(name)}")


def _forms(name: str) -> str:
    return f"Write 'timm:{name}', 'torchvision:{name}', 'transformers:{name}' or 'file.py:factory'."
