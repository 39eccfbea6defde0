"""Turns what went wrong inside PyTorch into one line that names the user's own code."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import torch
from torch import nn

from tracing.errors import TraceError

MAX_TEXT = 160
# Where the names of files begin that hold PyTorch's code, ours, or code without a file.
_NOT_THE_USERS = (
    f"{Path(torch.__file__).parent}{os.sep}",
    f"{Path(__file__).parents[1]}{os.sep}",
    "<string>",
    "<frozen",
)
# Errors of tracing that mean: the code asked for a value of a tensor that has none.
_VALUE_ERRORS = (
    "GuardOnDataDependentSymNode",
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "PendingUnbackedSymbolNotFound",
)
_VALUE_TEXTS = (
    "cannot be called on meta tensors",
    "data-dependent",
    "data dependent",
    "Cannot copy out of meta tensor",
    "on a meta tensor",
    "unbacked symbol",
    "data-independent implementation",
    "to number",
    "out of meta",
)


def needs_values(error: BaseException) -> bool:
    """Whether tracing failed because Python code depends on the values of tensors."""
    seen: BaseException | None = error
    while seen is not None:
        text = str(seen)
        if type(seen).__name__ in _VALUE_ERRORS or any(part in text for part in _VALUE_TEXTS):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def first_sentence(error: BaseException) -> str:
    """The first sentence of an error text, on one line and not long."""
    text = " ".join(str(error).strip().split("\n\n")[0].split())
    text = text.split(". ")[0].rstrip(".")
    if len(text) > MAX_TEXT:
        text = text[: MAX_TEXT - 3].rstrip() + "..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def place(error: BaseException) -> str:
    """File and line of the deepest frame that is neither PyTorch's nor ours."""
    found, trace = "", error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith(_NOT_THE_USERS):
            found = f"{name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def explain(error: Exception, model: nn.Module, hint: str = "") -> NoReturn:
    """Raises `TraceError` for an error met while tracing `model`."""
    if isinstance(error, TraceError):
        raise error
    where = place(error)
    at = f" at {where}" if where else ""
    if needs_values(error):
        text = "what runs here depends on the values of tensors"
        hint = hint or (
            "the inputs or weights have none; pass a model and inputs that are on the CPU, or "
            "replace the condition"
        )
    else:
        text = first_sentence(error)
    ending = f" ({hint})" if hint else ""
    raise TraceError(f"cannot trace {type(model).__name__}{at}: {text}{ending}") from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps PyTorch's loggers from printing programs and stacks while we try to trace."""
    known = list(logging.root.manager.loggerDict.items())
    loggers = [v for k, v in known if isinstance(v, logging.Logger) and k.split(".")[0] == "torch"]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, flag in zip(loggers, before, strict=True):
            logger.disabled = flag
