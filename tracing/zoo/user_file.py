"""A user's own model: a function in a Python file that returns it."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree

from tracing.zoo.common import Request, ZooError, one_line, suggest

OPTIONS = ("batch_size", "image_size", "seq_len", "mode", "attention")


def build(spec: str, request: Request) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """Calls the factory that a spec `file.py:factory` names; see `tracing.zoo.build`.

    The factory runs under the meta device first. Where its code reads values, which meta
    tensors do not have, it runs once more on the CPU.
    """
    path, factory_name = _parts(spec)
    try:
        with torch.device("meta"):
            return _on_one_device(*_call(_load(path), path, factory_name, request))
    except (NotImplementedError, RuntimeError, _FactoryError) as error:
        cause = error.__cause__ if isinstance(error, _FactoryError) else error
        if not isinstance(cause, (NotImplementedError, RuntimeError)) or "meta" not in str(cause):
            raise
    return _call(_load(path), path, factory_name, request)


def names() -> list[str]:
    """A user's files are not listed."""
    return []


def family(spec: str) -> str:
    """The name of the user's file."""
    return _parts(spec)[0].stem


class _FactoryError(ZooError):
    """The user's code raised an error."""


def _parts(spec: str) -> tuple[Path, str]:
    file, colon, factory = spec.rpartition(":")
    if not colon or not file.endswith(".py"):
        raise ZooError(f"'{spec}' names no function. Write '{spec.rstrip(':')}:factory'.")
    path = Path(file).expanduser()
    if not path.is_file():
        raise ZooError(f"Model file '{file}' does not exist.")
    if not factory.isidentifier():
        raise ZooError(f"'{factory}' in '{spec}' is not the name of a function.")
    return path.resolve(), factory


def _load(path: Path) -> ModuleType:
    """Runs a Python file as a module of its own; files beside it can be imported by it."""
    name = f"_prenet_user_{abs(hash(str(path)))}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ZooError(f"Model file '{path}' cannot be loaded as Python code.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise _FactoryError(_blame(path, error)) from error
    finally:
        sys.path.remove(str(path.parent))
    return module


def _call(
    module: ModuleType, path: Path, name: str, request: Request
) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    factory = getattr(module, name, None)
    if not callable(factory):
        functions = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        raise ZooError(f"{path.name} has no function '{name}'.{suggest(name, functions)}")
    result = _run(path, factory, _options(path, factory, request))
    if isinstance(result, nn.Module):
        inputs = getattr(module, "example_inputs", None)
        if not callable(inputs):
            raise ZooError(
                f"{name} in {path.name} returns a model without inputs. Return (model, args) or"
                " add a function example_inputs(batch_size) that returns args."
            )
        made = _run(path, inputs, _options(path, inputs, request))
        result = (result, *made) if _is_args_and_kwargs(made) else (result, made)
    return _checked(path, name, result)


def _options(path: Path, function: Callable[..., Any], request: Request) -> dict[str, Any]:
    """The arguments of the request that a function takes by name."""
    parameters = inspect.signature(function).parameters
    takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    options = {}
    for option in OPTIONS:
        value = getattr(request, option)
        if option in parameters or (takes_all and option == "batch_size"):
            default = getattr(parameters.get(option), "default", None)
            if value is not None or default is inspect.Parameter.empty:
                options[option] = value
    return options


def _run(path: Path, function: Callable[..., Any], options: dict[str, Any]) -> Any:
    try:
        return function(**options)
    except (Exception, SystemExit) as error:
        raise _FactoryError(_blame(path, error)) from error


def _blame(path: Path, error: BaseException) -> str:
    frames = [
        each for each in traceback.extract_tb(error.__traceback__) if each.filename == str(path)
    ]
    line = frames[-1].lineno if frames else getattr(error, "lineno", None)
    return f"{path.name}{f', line {line}' if line else ''}: {one_line(error)}"


def _is_args_and_kwargs(made: Any) -> bool:
    return (
        isinstance(made, tuple)
        and len(made) == 2
        and isinstance(made[0], tuple)
        and isinstance(made[1], Mapping)
    )


def _checked(
    path: Path, name: str, result: Any
) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    shape = isinstance(result, tuple) and len(result) in (2, 3)
    if not shape or not isinstance(result[0], nn.Module):
        raise ZooError(
            f"{name} in {path.name} must return model, (model, args) or (model, args, kwargs),"
            f" not {type(result).__name__}."
        )
    model, args = result[0], result[1]
    kwargs = result[2] if len(result) == 3 else {}
    if isinstance(args, torch.Tensor):
        args = (args,)
    elif isinstance(args, Mapping) and len(result) == 2:
        args, kwargs = (), args
    if not isinstance(args, (tuple, list)) or not isinstance(kwargs, Mapping):
        raise ZooError(f"{name} in {path.name}: args must be a tuple and kwargs a dictionary.")
    return model, tuple(args), dict(kwargs)


def _on_one_device(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """Moves inputs that were made elsewhere (from numpy, say) to the model's meta device."""
    tensors = [*model.parameters(), *model.buffers()]
    if not tensors or any(each.device.type != "meta" for each in tensors):
        return model, args, kwargs

    def to_meta(value: Any) -> Any:
        return value.to("meta") if isinstance(value, torch.Tensor) else value

    moved = _pytree.tree_map(to_meta, (args, kwargs))
    return model, moved[0], moved[1]
