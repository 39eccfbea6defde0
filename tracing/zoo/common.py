"""What all builders of the zoo share: the request, its checks, the error and offline mode."""

from __future__ import annotations

import contextlib
import difflib
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracing.errors import TraceError

if TYPE_CHECKING:
    from torch import Tensor, nn

MODES = ("train", "infer")
ATTENTIONS = ("eager", "sdpa")


class ZooError(TraceError):
    """A model spec is wrong or its model cannot be built."""


@dataclass(frozen=True, slots=True)
class Request:
    """Checked arguments of one build; see `tracing.zoo.build`."""

    batch_size: int = 8
    image_size: int | None = None
    seq_len: int | None = None
    mode: str = "train"
    attention: str | None = None

    def __post_init__(self) -> None:
        """Checks every field."""
        for field in ("batch_size", "image_size", "seq_len"):
            value = getattr(self, field)
            if value is None and field != "batch_size":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ZooError(f"{field} must be a whole number of at least 1, not {value!r}.")
        if self.mode not in MODES:
            raise ZooError(f"mode '{self.mode}' is not known. Allowed: {', '.join(MODES)}.")
        if self.attention is not None and self.attention not in ATTENTIONS:
            raise ZooError(
                f"attention '{self.attention}' is not known. Allowed: {', '.join(ATTENTIONS)}."
            )

    @property
    def training(self) -> bool:
        """Whether the model is built for training."""
        return self.mode == "train"


def on_meta(build: Callable[[], nn.Module]) -> nn.Module:
    """Calls a constructor under the meta device.

    Where its code reads values of tensors (RegNet of torchvision rounds its widths so), only the
    parameters and buffers are on `meta`.
    """
    import torch

    try:
        with torch.device("meta"):
            return build()
    except Exception as error:
        try:
            with _state_on_meta():
                return build()
        except Exception:
            raise error from None


@contextlib.contextmanager
def _state_on_meta() -> Iterator[None]:
    """While the block runs, modules move every parameter and buffer they take to `meta`."""
    from torch import nn
    from torch.nn.modules import module as hooks
    from torch.nn.parameter import is_lazy

    # a hook may give back what takes the value's place, which PyTorch's own types leave out
    def parameter(_module: nn.Module, _name: str, value: nn.Parameter | None) -> Any:
        if value is None or value.is_meta or is_lazy(value):
            return None
        return nn.Parameter(value.detach().to("meta"), value.requires_grad)

    def buffer(_module: nn.Module, _name: str, value: Tensor | None) -> Any:
        return None if value is None or is_lazy(value) else value.to("meta")

    handles = [
        hooks.register_module_parameter_registration_hook(parameter),
        hooks.register_module_buffer_registration_hook(buffer),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def suggest(name: str, known: Iterable[str]) -> str:
    """Says which known names come close to a name, or nothing."""
    near = difflib.get_close_matches(name.lower(), list(known), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(repr(each) for each in near)}?" if near else ""


def unknown(library: str, name: str, known: Iterable[str]) -> ZooError:
    """The error for a name that a library does not have."""
    return ZooError(
        f"{library} has no model '{name}'.{suggest(name, known)}"
        f" tracing.zoo.names('{library}:') lists all."
    )


def missing_extra(library: str) -> ZooError:
    """The error for a library that is not installed."""
    return ZooError(f"{library} is not installed. Install it with: pip install 'prenet-gnn[zoo]'")


def one_line(error: BaseException, limit: int = 240) -> str:
    """The type and text of an error on one line."""
    text = " ".join(str(error).split())
    text = text if len(text) <= limit else text[: limit - 3] + "..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@contextlib.contextmanager
def offline() -> Iterator[None]:
    """Keeps the libraries from reaching the model hub and from warning while a model is built."""
    before = os.environ.get("HF_HUB_OFFLINE")
    flag = str(before).upper() in {"1", "ON", "YES", "TRUE"}
    os.environ["HF_HUB_OFFLINE"] = "1"
    _set_hub_flag(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if before is None:
            os.environ.pop("HF_HUB_OFFLINE", None)
        else:
            os.environ["HF_HUB_OFFLINE"] = before
        _set_hub_flag(flag)


def _set_hub_flag(value: bool) -> None:
    """The hub client reads the environment once at import, so its copy is set as well."""
    constants = sys.modules.get("huggingface_hub.constants")
    if constants is not None:
        vars(constants)["HF_HUB_OFFLINE"] = value
