"""Splits: the same indices as committed results were made with, and no group on both sides."""

from __future__ import annotations

import zlib

import numpy as np
import pandas as pd
import pytest

from prenet_gnn.data import families, splits
from prenet_gnn.data.splits import NEW_CHIP, TEST_KINDS, Split, check_split, joint_fold
from prenet_gnn.errors import ConfigError, DataError

MODELS = (
    "resnet18 resnet50 vgg11 vgg16 densenet121 alexnet squeezenet1_0 googlenet mnasnet1_0 "
    "vit_b_16 swin_t convnext_tiny"
).split()
DEVICES = (
    "Tesla T4",
    "Tesla P4",
    "Tesla V100-PCIE-32GB",
    "Tesla V100-SXM2-16GB",
    "NVIDIA H100-SXM5-80GB",
    "NVIDIA A100-PCIE-80GB",
    "NVIDIA A100-SXM4-40GB",
    "NVIDIA GeForce RTX 4090",
)
FOLDS = 3
# Checksums of the training rows and of every kind of test rows: results that were measured on a
# fold mean nothing once its rows change.
GOLDEN = [
    [2314509975, 4204213985, 1463591834, 801716536, 1978081317],
    [2591015803, 3118590538, 2947262942, 511429094, 3349777075],
    [1867033004, 3387539840, 1432671054, 2867730335, 2371064615],
]
EMPTY = np.zeros(0, dtype=np.int64)


@pytest.fixture
def frame() -> pd.DataFrame:
    rows = [
        ("torchvision", model, device, device, "torchvision")
        for model in MODELS
        for number, device in enumerate(DEVICES)
        for _ in range(1 + number % 3)
    ]
    columns = ["library", "model", "gpu", "device", "source"]
    return pd.DataFrame(rows, columns=columns).sample(frac=1, random_state=0, ignore_index=True)


def checksum(rows: np.ndarray) -> int:
    return zlib.crc32(np.asarray(rows, dtype="<i8").tobytes())


def of(frame: pd.DataFrame, column: str, rows: np.ndarray) -> set[str]:
    return set(frame[column].to_numpy()[rows])


@pytest.mark.parametrize("number", range(FOLDS))
def test_a_fold_has_the_rows_that_it_always_had(frame, number):
    split = joint_fold(frame, number, folds=FOLDS)
    assert [checksum(part) for part in (split.train, *split.test.values())] == GOLDEN[number]


def test_every_family_and_every_chip_is_held_out_once(frame):
    frame["chip"] = [splits.chip_name(name) for name in frame["gpu"]]
    frame["family"] = families.families(frame)
    held = []
    for number in range(FOLDS):
        split = joint_fold(frame, number, folds=FOLDS)
        held.append((split.families, split.devices))
        parts = [split.train, *split.test.values()]
        assert tuple(split.test) == TEST_KINDS
        assert sorted(np.concatenate(parts).tolist()) == list(range(len(frame)))
        unseen = {kind: split.test[kind] for kind in TEST_KINDS[1:]}
        for kind, column in (("architecture", "family"), ("device", "chip")):
            for part in (unseen[f"unseen-{kind}"], unseen["unseen-both"]):
                assert not of(frame, column, split.train) & of(frame, column, part)
        assert of(frame, "gpu", unseen["unseen-device"]) == set(split.devices)
    for place, column in enumerate(("family", "gpu")):
        names = [name for group in held for name in group[place]]
        assert sorted(names) == sorted(set(frame[column]))


def test_another_seed_gives_other_folds(frame):
    first, again, other = (joint_fold(frame, 0, FOLDS, seed).families for seed in (0, 0, 1))
    assert first == again != other


@pytest.mark.parametrize("device", DEVICES)
def test_a_device_is_left_out_with_its_siblings(frame, device):
    split = splits.without_device(frame, device)
    assert device in split.devices
    assert of(frame, "gpu", split.test["unseen-device"]) == set(split.devices)
    chips = {splits.chip_name(name) for name in of(frame, "gpu", split.train)}
    assert splits.chip_name(device) not in chips


def test_a_device_without_rows_is_refused(frame):
    with pytest.raises(ConfigError, match="Devices with rows: NVIDIA A100"):
        splits.without_device(frame, "RTX 9999")


@pytest.mark.parametrize(
    ("device", "chip"),
    [
        ("Tesla V100-SXM2-16GB", "Tesla V100"),
        ("NVIDIA A100-PCIE-80GB", "NVIDIA A100"),
        ("NVIDIA H100-SXM5-80GB", "NVIDIA H100"),
        ("NVIDIA GeForce RTX 2080 Ti", "NVIDIA GeForce RTX 2080 Ti"),
        ("Tesla P100-PCIE-16GB", "Tesla P100"),
        ("Intel Core i7-12700H", "Intel Core i7-12700H"),
    ],
)
def test_chip_names(device, chip):
    assert splits.chip_name(device) == chip


def test_a_transfer_drops_relatives_and_sets_new_chips_apart(frame):
    model, gpu = frame["model"].to_numpy(), frame["gpu"].to_numpy()
    train = np.isin(model, ["resnet18", "vgg11"]) & (gpu != "Tesla T4")
    split = splits.transfer("here-to-there", frame, train, ~train)
    assert of(frame, "model", split.train) == {"resnet18", "vgg11"}
    assert set(split.test) == {"here-to-there", "here-to-there" + NEW_CHIP}
    tested = of(frame, "model", np.concatenate(list(split.test.values())))
    assert not tested & {"resnet18", "resnet50", "vgg11", "vgg16"}
    assert of(frame, "gpu", split.test["here-to-there" + NEW_CHIP]) == {"Tesla T4"}


def test_neusight_uses_its_own_devices(frame):
    frame.loc[::2, "source"] = "neusight"
    split = splits.neusight(frame)
    (test,) = split.test.values()
    assert of(frame, "device", test) == set(splits.NEUSIGHT_TEST_DEVICES)
    assert of(frame, "source", test) == {"neusight"}
    assert of(frame, "device", split.train) == set(splits.NEUSIGHT_TRAIN_DEVICES) & set(DEVICES)
    assert of(frame, "source", split.train) == {"neusight", "torchvision"}


def test_json_round_trip(frame, tmp_path):
    split = joint_fold(frame, 1, folds=FOLDS)
    split.to_json(tmp_path / "split.json")
    loaded = Split.from_json(tmp_path / "split.json")
    for name in ("name", "devices", "families"):
        assert getattr(loaded, name) == getattr(split, name)
    assert list(loaded.test) == list(split.test)
    for part, same in ((split.train, loaded.train), (split.val, loaded.val)):
        assert np.array_equal(part, same)
    assert all(np.array_equal(rows, loaded.test[kind]) for kind, rows in split.test.items())


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"name": "x", "train": ["a"]}', "null"])
def test_a_file_that_is_no_split_is_an_error(tmp_path, text):
    (tmp_path / "split.json").write_text(text)
    with pytest.raises(DataError, match="not a split file"):
        Split.from_json(tmp_path / "split.json")


@pytest.mark.parametrize(
    ("train", "val", "test", "message"),
    [
        ([0, 1], [2], [], "no test rows"),
        ([], [2], [1], "no train rows"),
        ([0, 1], [2], [1], "row 1 is in train and in random"),
        ([0, 1], [1], [3], "row 1 is in train and in val"),
        ([0, 1], [3], [3], "row 3 is in val and in random"),
        ([0, 0], [2], [3], "repeats train rows"),
        ([0, 1], [2], [99], "another table"),
    ],
)
def test_broken_splits_are_refused(train, val, test, message):
    train, val, test = (np.array(rows, dtype=np.int64) for rows in (train, val, test))
    with pytest.raises(DataError, match=message):
        check_split(Split("broken", train, {"random": test}, val), 4, {})


@pytest.mark.parametrize("what", ["family", "chip"])
def test_a_group_on_both_sides_is_refused(what):
    split = Split("leaky", np.arange(3), {"unseen": np.arange(3, 6)}, EMPTY)
    with pytest.raises(DataError, match=f"{what} same is in train and in unseen"):
        check_split(split, 6, {what: np.array(["same"] * 6)})


@pytest.mark.parametrize(
    ("library", "model", "name"),
    [
        ("timm", "tv_resnet50", "resnet50"),
        ("timm", "resnet50.a1_in1k", "resnet50"),
        ("timm", "gluon_resnet50_v1b", "resnet50_v1b"),
        ("torchvision", "mobilenet_v2", "mobilenetv2_100"),
        ("transformers", "org/bert-large-uncased", "bert_large"),
    ],
)
def test_architecture_names(library, model, name):
    assert families.architecture(library, model) == name


def test_families_of_timm_come_from_its_modules():
    pytest.importorskip("timm")
    assert families.family_of("timm", "vit_base_patch16_224") == "vision_transformer"
    for library in ("timm", "torchvision"):
        assert families.family_of(library, "resnet50") == "resnet"
    assert families.family_of("timm", "convnext_tiny_hnfd") == "convnext"
    with pytest.raises(DataError, match="no family"):
        families.family_of("timm", "no_such_net")


def test_measured_rows_split_without_leaks(data_dir):
    pytest.importorskip("timm")
    from prenet_gnn.data import read_measurements, training_rows

    frame = training_rows(read_measurements(data_dir))
    for number in range(5):
        split = joint_fold(frame, number)
        parts = [split.train, *split.test.values()]
        assert sum(map(len, parts)) == len(np.unique(np.concatenate(parts)))
        assert 0.3 < len(split.train) / len(frame) < 0.9
    (test,) = splits.neusight(frame).test.values()
    assert len(test) == 28
