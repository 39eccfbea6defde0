"""Lets a typer command take its options as a few dataclasses."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints


def _default(field: "dataclasses.Field[Any]") -> Any:
    """The default of a parameter; an option without one has to be given."""
    missing = field.default is dataclasses.MISSING
    return inspect.Parameter.empty if missing else field.default


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Lets a typer command take options as one dataclass instead of a long list of parameters."""
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, type[Any]] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if not dataclasses.is_dataclass(kind):
            parameters.append(
                parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY)
            )
            continue
        assert isinstance(kind, type)
        groups[name] = kind
        inner = get_type_hints(kind, include_extras=True)
        for field in dataclasses.fields(kind):
            parameters.append(
                inspect.Parameter(
                    field.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=_default(field),
                    annotation=inner[field.name],
                )
            )

    def run(**values: Any) -> None:
        for name, kind in groups.items():
            values[name] = kind(**{f.name: values.pop(f.name) for f in dataclasses.fields(kind)})
        command(**values)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run
