"""Settings of a network and of its training: a wrong one is refused in one line."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import pytest

pytest.importorskip("lightning")

from prenet_gnn.errors import ConfigError
from prenet_gnn.network.config import NetworkConfig
from prenet_gnn.training.config import RunConfig
from prenet_gnn.training.train_config import TrainConfig

CLASSES = {"model": NetworkConfig, "train": TrainConfig}
# A value of each type that a setting of another type must not take.
FOREIGN: dict[type, tuple[Any, ...]] = {
    bool: (1, "true", None, 0.0),
    int: (1.5, "64", True, None, [64], math.nan, -1, 10**18),
    float: ("0.1", True, None, math.nan, math.inf, -0.5),
    str: (1, None, "", "none of these", ["muon"]),
    tuple: (1, None, "cache", ["none of these"], [1]),
}
TABLES = {"train": asdict(TrainConfig())} | {
    f"model.{block}": settings for block, settings in asdict(NetworkConfig()).items()
}
WRONG = [
    (table, name, value)
    for table, settings in TABLES.items()
    for name, default in settings.items()
    for value in FOREIGN[type(default)]
]


@pytest.mark.parametrize(("table", "name", "value"), WRONG)
def test_a_wrong_value_names_the_setting(table: str, name: str, value: Any) -> None:
    whole, _, block = table.partition(".")
    data = {block: {name: value}} if block else {name: value}
    for build in (CLASSES[whole].from_dict, lambda d: RunConfig.from_dict({whole: d})):
        with pytest.raises(ConfigError, match=f"{table}.{name}") as caught:
            build(data)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("table", CLASSES)
def test_what_was_written_is_read(table: str) -> None:
    config = CLASSES[table]()
    assert CLASSES[table].from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("table", "data", "says"),
    [
        ("model", {"encoder": {"hiden": 64}}, "Did you mean 'hidden'"),
        ("train", {"learning_rat": 1e-3}, "Did you mean 'learning_rate'"),
        ("model", {"encoder": {"zzz": 1}}, "Allowed: hidden, layers"),
        ("model", {"zzz": {}}, "Allowed: encoder, head"),
        ("model", {"physics": {"effects": ["cash"]}}, "'cash' is not known. Allowed: .*cache"),
        ("model", {"encoder": {"hidden": 0}}, "at least 1 and at most 4096, not 0"),
        ("train", {"weight_decay": -1}, "at least 0"),
        ("model", [], "must be a table"),
        ("train", 7, "must be a table"),
    ],
)
def test_messages(table: str, data: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        CLASSES[table].from_dict(data)


def test_a_whole_number_is_a_number() -> None:
    assert TrainConfig.from_dict({"weight_decay": 0}).weight_decay == 0.0
    assert isinstance(NetworkConfig.from_dict({"encoder": {"dropout": 0}}).encoder.dropout, float)
