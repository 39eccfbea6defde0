"""The device catalogue: figures, look-ups, prices and device files of a user's own."""

from __future__ import annotations

import gzip
import json
import math
import re
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from prenet_gnn.catalogue.devices import get_hardware, list_hardware
from prenet_gnn.catalogue.prices import offers_of, read_offers
from prenet_gnn.catalogue.reading import device_from, read_catalogue
from prenet_gnn.catalogue.spec import PEAK_PRECISIONS, Hardware
from prenet_gnn.errors import ConfigError, UnknownHardwareError

DEVICES = read_catalogue()
# Chips whose stated float32 peak may be twice lanes x 2 x boost clock: dual issue, packed math.
DUAL_ISSUE = {"RDNA 3", "RDNA 3.5", "RDNA 4", "CDNA 2", "CDNA 3", "CDNA 4"}
# Chips whose matrix rate is capped below what units and clock give, or stated at another clock.
CAPPED = {"NVIDIA H20", "NVIDIA H100-NVL-94GB", "Intel Arc A770"}
# Consumer lines whose matrix units run at half rate when they add up in float32.
HALF_RATE = {"Turing": 32, "Ampere": 64, "Ada Lovelace": 64, "Blackwell": 64}
GOOD: dict[str, Any] = {
    "name": "Own chip",
    "multiprocessors": 80,
    "memory_bytes": 2**35,
    "memory_bytes_per_s": 1.2e12,
    "peak_fp32_flops_per_s": 2e13,
}


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def test_catalogue_is_complete() -> None:
    assert len(DEVICES) >= 199
    assert len({each.name for each in DEVICES}) == len(DEVICES)
    assert list_hardware() == DEVICES
    assert {each.kind for each in DEVICES} == {"gpu", "cpu", "tpu", "other"}


@pytest.mark.parametrize("device", DEVICES, ids=lambda each: each.name)
def test_entry_is_plausible(device: Hardware) -> None:
    assert device.sources and all(device.sources)
    assert device.confidence in {"high", "medium", "low"}
    assert device.vendor and device.architecture and 2010 <= device.launch_year <= 2030
    assert 2e9 < device.memory_bytes < (1e13 if device.kind == "cpu" else 1e12)
    assert (5e9 if device.kind == "cpu" else 5e10) < device.memory_bytes_per_s < 2e13
    assert device.tdp_w is None or 10 <= device.tdp_w <= 2000
    if device.fp32_cores and device.boost_clock_hz and device.kind == "gpu":
        ratio = device.peak_flops_per_s("fp32") / (2 * device.fp32_cores * device.boost_clock_hz)
        factor = 2 if device.architecture in DUAL_ISSUE else 1
        assert 0.9 < ratio < 1.1 * factor
    if device.fp32_cores and device.kind == "gpu":
        assert device.fp32_cores % device.multiprocessors == 0
    for low, high in (("fp64", "fp32"), ("fp32", "bf16"), ("tf32", "bf16"), ("bf16", "fp8")):
        assert device.peak_flops_per_s(low) <= device.peak_flops_per_s(high) * 1.001


@pytest.mark.parametrize("device", DEVICES, ids=lambda each: each.name)
def test_matrix_rate_is_units_times_clock(device: Hardware) -> None:
    rate = device.stated_peak("fp16")
    if device.kind != "gpu" or not device.tensor_cores or not device.boost_clock_hz or not rate:
        return
    products = rate / (2 * device.tensor_cores * device.boost_clock_hz)
    power = round(math.log2(products))
    assert device.name in CAPPED or 1 / 1.12 < products / 2**power < 1.12
    if "GeForce" in device.name and device.architecture in HALF_RATE:
        assert 2**power == HALF_RATE[device.architecture]
    elif device.vendor == "NVIDIA" and device.stated_peak("tf32") and device.name not in CAPPED:
        assert 0.9 < 2 * device.peak_flops_per_s("tf32") / rate < 1.1


def test_variants_share_what_their_chips_share() -> None:
    for name, twin in (
        ("NVIDIA A800-SXM4-80GB", "NVIDIA A100-SXM4-80GB"),
        ("NVIDIA A800-PCIE-80GB", "NVIDIA A100-PCIE-80GB"),
        ("NVIDIA H800-SXM5-80GB", "NVIDIA H100-SXM5-80GB"),
        ("NVIDIA H800-PCIE-80GB", "NVIDIA H100-PCIE-80GB"),
        ("NVIDIA GeForce RTX 4060 Ti 8GB", "NVIDIA GeForce RTX 4060 Ti 16GB"),
        ("NVIDIA GeForce RTX 5060 Ti 8GB", "NVIDIA GeForce RTX 5060 Ti 16GB"),
        ("NVIDIA RTX A2000", "NVIDIA RTX A2000 12GB"),
        ("NVIDIA GeForce RTX 3080 Laptop GPU", "NVIDIA GeForce RTX 3080 Laptop GPU 16GB"),
    ):
        one, other = get_hardware(name), get_hardware(twin)
        for precision in ("fp32", "tf32", "fp16", "bf16"):
            ratio = one.peak_flops_per_s(precision) / other.peak_flops_per_s(precision)
            assert ratio == pytest.approx(1, rel=0.01)
        assert one.memory_bytes_per_s == other.memory_bytes_per_s
        assert one.multiprocessors == other.multiprocessors


def test_aliases_belong_to_one_device() -> None:
    owners: dict[str, str] = {}
    for device in DEVICES:
        for spelling in (device.name, *device.aliases):
            assert owners.setdefault(_plain(spelling), device.name) == device.name
            assert get_hardware(spelling).name == device.name


def test_known_figures_in_si_units() -> None:
    v100 = get_hardware("Tesla V100-SXM2-16GB")
    assert (v100.multiprocessors, v100.fp32_cores, v100.memory_bytes) == (80, 5120, 16 * 2**30)
    assert v100.memory_bytes_per_s == 9.0e11 and v100.boost_clock_hz == 1.53e9
    assert v100.peak_flops_per_s("fp32") == 1.57e13
    assert v100.peak_flops_per_s("amp_fp16") == v100.peak_flops_per_s("fp16") == 1.25e14
    assert v100.pcie_bytes_per_s == 1.6e10 and v100.interconnect_bytes_per_s == 3.0e11


def test_peak_falls_back_to_what_the_device_computes_in() -> None:
    v100, titan = get_hardware("Tesla V100-SXM2-16GB"), get_hardware("NVIDIA TITAN Xp")
    assert v100.stated_peak("tf32") is None
    assert v100.peak_flops_per_s("tf32") == v100.peak_flops_per_s("fp32")
    assert v100.peak_flops_per_s("bf16") == v100.peak_flops_per_s("fp32")
    assert titan.stated_peak("fp16") == 1.9e11
    assert titan.peak_flops_per_s("fp16") == titan.peak_flops_per_s("fp32") == 1.215e13
    for device in DEVICES:
        assert all(device.peak_flops_per_s(each) > 0 for each in PEAK_PRECISIONS)
    with pytest.raises(ValueError, match=r"int4.*Allowed"):
        v100.peak_flops_per_s("int4")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("nvidia geforce rtx 4090", "NVIDIA GeForce RTX 4090"),
        ("RTX_4080", "NVIDIA GeForce RTX 4080"),
        ("2080ti", "NVIDIA GeForce RTX 2080 Ti"),
        ("rtx 2080", "NVIDIA GeForce RTX 2080"),
        ("2080 super max-q", "NVIDIA GeForce RTX 2080 Super Max-Q"),
        ("GeForce RTX 2070 with Max-Q Design", "NVIDIA GeForce RTX 2070 Max-Q"),
        ("quadro rtx 5000", "Quadro RTX 5000"),
        ("RTX 5000", "Quadro RTX 5000"),
        ("3080 laptop gpu 16gb", "NVIDIA GeForce RTX 3080 Laptop GPU 16GB"),
        ("T4", "Tesla T4"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100-SXM5-80GB"),
        ("h100 sxm", "NVIDIA H100-SXM5-80GB"),
        ("mi300x", "AMD Instinct MI300X"),
        ("K80", "Tesla K80"),
        ("rtx3090", "NVIDIA GeForce RTX 3090"),
        ("RTX 3090", "NVIDIA GeForce RTX 3090"),
        ("4090", "NVIDIA GeForce RTX 4090"),
        ("4070 super", "NVIDIA GeForce RTX 4070 Super"),
        ("tesla t4", "Tesla T4"),
        ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB"),
        ("a100 sxm 40 GB", "NVIDIA A100-SXM4-40GB"),
        ("A100 PCIe 80G", "NVIDIA A100-PCIE-80GB"),
        ("H100SXM", "NVIDIA H100-SXM5-80GB"),
        ("teslap100", "Tesla P100-PCIE-16GB"),
        ("rx7900xtx", "AMD Radeon RX 7900 XTX"),
        ("7900 XT", "AMD Radeon RX 7900 XT"),
        ("RTX A6000", "NVIDIA RTX A6000"),
        ("6000 Blackwell Max-Q", "NVIDIA RTX PRO 6000 Blackwell Max-Q"),
        ("Quadro RTX A4000", "NVIDIA RTX A4000"),
        ("RTX 4090 Laptop", "NVIDIA GeForce RTX 4090 Laptop GPU"),
        ("AGX Orin 64GB", "NVIDIA Jetson AGX Orin 64GB"),
        ("Intel(R) Arc(TM) A770", "Intel Arc A770"),
        ("Xeon 8480+", "Intel Xeon Platinum 8480+"),
        ("TPU v6 lite", "Google TPU v6e"),
        ("DGX Spark", "NVIDIA GB10"),
    ],
)
def test_lookup_takes_common_spellings(text: str, name: str) -> None:
    assert get_hardware(text).name == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Apple M1", "Apple M1"),
        ("M2", "Apple M2"),
        ("H20", "NVIDIA H20"),
        ("L20", "NVIDIA L20"),
        ("MI60", "AMD Instinct MI60"),
        ("RTX 2060", "NVIDIA GeForce RTX 2060"),
        ("GTX 1660", "NVIDIA GeForce GTX 1660"),
        ("Apple M5", None),
        ("Apple M60", None),
        ("AMD H100", None),
        ("AMD Radeon Graphics", None),
        ("B20", None),
        ("V10", None),
        ("H2", None),
        ("20", None),
        ("200", None),
        ("580", None),
        ("480", None),
        ("RX 580", None),
        ("RX 7700", None),
        ("RX 780", None),
        ("RTX 309", None),
        ("RTX 3070 Max-Q", None),
        ("Quadro RTX 4000", None),
        ("RX 7900", None),
        ("RX 6900", None),
        ("MI30", None),
        ("TPU", None),
        ("80GB", None),
        ("SXM", None),
        ("GPU", None),
    ],
)
def test_part_of_a_word_is_no_name(text: str, name: str | None) -> None:
    if name:
        assert get_hardware(text).name == name
        return
    with pytest.raises(UnknownHardwareError, match="is not in the catalogue"):
        get_hardware(text)


@pytest.mark.parametrize(
    "text",
    ["H100", "V100", "a100 40gb", "A100 80GB", "A800", "RTX PRO 6000", "3080 laptop", "Titan X"],
)
def test_ambiguous_name_lists_the_candidates(text: str) -> None:
    with pytest.raises(UnknownHardwareError, match="several devices") as caught:
        get_hardware(text)
    assert str(caught.value).count(",") >= 1 and "\n" not in str(caught.value)


def test_unknown_name_gives_the_nearest() -> None:
    with pytest.raises(UnknownHardwareError, match=r"rtx 5099.*NVIDIA GeForce RTX 5090"):
        get_hardware("rtx 5099")
    with pytest.raises(UnknownHardwareError, match="does not exist"):
        get_hardware("nowhere/chip.toml")
    with pytest.raises(UnknownHardwareError, match="empty"):
        get_hardware(" ")


def test_prices_name_catalogue_devices() -> None:
    names = {each.name for each in DEVICES}
    for device, offers in read_offers().items():
        assert device in names
        assert [each.usd_per_hour for each in offers] == sorted(e.usd_per_hour for e in offers)
        for offer in offers:
            assert 0 < offer.usd_per_hour < 100 and offer.devices_per_instance >= 1
            assert offer.provider and offer.source.startswith("https://")
            assert isinstance(offer.as_of, date)
    assert any(
        each.provider == "AWS" and each.usd_per_hour == 0.526
        for each in offers_of(get_hardware("T4"))
    )
    assert offers_of(get_hardware("Tesla K40")) == ()


def test_own_device_file(tmp_path: Path) -> None:
    toml, as_json = tmp_path / "chip.toml", tmp_path / "chip.json"
    toml.write_text("\n".join(f"{key} = {json.dumps(value)}" for key, value in GOOD.items()))
    as_json.write_text(json.dumps(GOOD))
    device = get_hardware(toml)
    assert device == get_hardware(str(as_json)) == device_from(GOOD, "here")
    assert device.name == "Own chip" and device.peak_flops_per_s("bf16") == 2e13
    assert device.confidence == "user" and device.l2_bytes is None
    assert offers_of(device) == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"memory_bandwith": 1.0}, r"'memory_bandwith' is not known"),
        ({"memory_bytes_per_s": None}, r"'memory_bytes_per_s' is missing"),
        ({"memory_bytes_per_s": 900}, r"'memory_bytes_per_s' is 900, outside .* unit right"),
        ({"memory_bytes": -1}, r"'memory_bytes' is -1, outside"),
        ({"memory_bytes_per_s": float("nan")}, "finite number"),
        ({"tdp_w": float("inf")}, "finite number"),
        ({"multiprocessors": 1.5}, "whole number"),
        ({"multiprocessors": True}, "must be a number"),
        ({"name": " "}, "'name' is empty"),
        ({"name": 3}, "must be text"),
        ({"aliases": "x"}, "list of texts"),
        ({"kind": "fpga"}, r"kind 'fpga' is not known\. Allowed: gpu"),
        ({"peak_fp32_flops_per_s": None}, "no peak rate"),
    ],
)
def test_bad_device_fields_are_named(change: dict[str, Any], message: str) -> None:
    values = {key: value for key, value in (GOOD | change).items() if value is not None}
    with pytest.raises(ConfigError, match=message) as caught:
        device_from(values, "Device file 'x.toml'")
    assert str(caught.value).startswith("Device file 'x.toml': ")


@pytest.mark.parametrize("text", ["name = ", "[]", "device = [{}, {}]"])
def test_bad_device_file(tmp_path: Path, text: str) -> None:
    for suffix in ("toml", "json"):
        path = tmp_path / f"bad.{suffix}"
        path.write_text(text)
        with pytest.raises(ConfigError, match=r"bad\."):
            get_hardware(path)


def test_catalogue_needs_no_torch() -> None:
    code = (
        "import sys, prenet_gnn.catalogue.devices as h; h.list_hardware(); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_measured_devices_are_in_the_catalogue(data_dir: Path) -> None:
    import csv

    wanted = set()
    for table in ("measurements", "measurements_extra"):
        with gzip.open(data_dir / f"{table}.csv.gz", "rt") as handle:
            wanted |= {row["gpu"] for row in csv.DictReader(handle)}
    names = {each.name for each in DEVICES}
    assert wanted <= names
