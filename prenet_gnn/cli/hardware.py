"""`prenet hardware`: the catalogue of devices, one entry, or this machine's own."""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prenet_gnn.cli._options import Json, Output

if TYPE_CHECKING:
    from prenet_gnn.catalogue.devices import Hardware


def hardware(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Name, alias or device file.")
    ] = None,
    detect: Annotated[
        bool, typer.Option("--detect", help="Measure this machine's device and print its entry.")
    ] = False,
    output: Output = None,
    json: Json = False,
) -> None:
    """Lists the devices that are known, or shows one."""
    from prenet_gnn.catalogue.devices import get_hardware, list_hardware
    from prenet_gnn.cli._text import emit, json_text

    if detect:
        from prenet_gnn.measuring import detect as detect_device

        emit(json_text(detect_device()), output)
    elif name is not None:
        values = _values(get_hardware(name))
        emit(json_text(values) if json else _lines(values), output)
    elif json:
        emit(json_text({"devices": [_values(each) for each in list_hardware()]}), output)
    else:
        _print_all(list_hardware())


def _values(device: "Hardware") -> dict[str, Any]:
    return {**dataclasses.asdict(device), "peaks": dict(device.peaks)}


def _lines(values: dict[str, Any]) -> str:
    def text(value: Any) -> str:
        if isinstance(value, dict):
            return ", ".join(f"{k} {text(v)}" for k, v in value.items() if v is not None)
        if isinstance(value, list | tuple):
            return ", ".join(text(v) for v in value)
        return f"{value:.6g}" if isinstance(value, float) else str(value)

    shown = {k: text(v) for k, v in values.items() if v not in (None, "", (), [], {})}
    width = max(len(key) for key in shown)
    return "\n".join(f"{key:<{width}}  {value}" for key, value in shown.items())


def _print_all(devices: tuple["Hardware", ...]) -> None:
    from prenet_gnn.cli._text import bytes_text, count_text, print_table

    def rate(device: "Hardware", precision: str) -> str:
        value = device.stated_peak(precision)
        return "" if value is None else count_text(value)

    rows = [
        (
            device.name,
            device.architecture,
            f"{device.launch_year or ''}",
            bytes_text(device.memory_bytes),
            f"{device.memory_bytes_per_s / 1e9:,.0f}",
            rate(device, "fp32"),
            rate(device, "fp16"),
            f"{device.tdp_w or 0:.0f}",
        )
        for device in devices
    ]
    columns = ("device", "architecture", "year", "memory", "GB/s", "fp32", "fp16", "W")
    print_table(columns, rows)
    print(f"{len(devices)} devices; FLOP/s are dense peaks. One device: prenet hardware NAME")
