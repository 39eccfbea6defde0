from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from prenet_gnn.data import families, splits
from prenet_gnn.data.split import Split, check_split
from prenet_gnn.errors import ConfigError, DataError

MODELS = [  # library, model, family
    ("timm", "resnet50", "resnet"),
    ("timm", "resnet101", "resnet"),
    ("timm", "tv_resnet50", "resnet"),
    ("torchvision", "resnet50", "resnet"),
    ("torchvision", "vgg16", "vgg"),
    ("torchvision", "densenet121", "densenet"),
    ("timm", "densenet121", "densenet"),
    ("timm", "vit_base_patch16_224", "vision_transformer"),
    ("timm", "deit3_base_patch16_224", "deit"),
    ("timm", "convnext_tiny", "convnext"),
    ("timm", "regnety_040", "regnet"),
    ("timm", "mobilevit_s", "mobilevit"),
    ("torchvision", "mnasnet1_0", "mnasnet"),
    ("timm", "mnasnet_100", "efficientnet"),
    ("transformers", "bert_large", "bert"),
]
DEVICES = [
    "Tesla T4",
    "Tesla P4",
    "Tesla V100-PCIE-32GB",
    "Tesla V100-SXM2-16GB",
    "NVIDIA H100-SXM5-80GB",
    "NVIDIA A100-PCIE-80GB",
    "NVIDIA A100-SXM4-40GB",
    "NVIDIA GeForce RTX 4090",
]


@pytest.fixture
def frame() -> pd.DataFrame:
    rows = []
    for (library, model, group), device, version in itertools.product(MODELS, DEVICES, (112, 209)):
        source = "neusight" if library == "transformers" else library
        rows.append((library, model, group, device, version, source))
    names = ["library", "model", "family", "device", "torch_version", "source"]
    return pd.DataFrame(rows, columns=names).sample(frac=1, random_state=0)


def all_splits(frame: pd.DataFrame, seed: int = 0) -> list[Split]:
    return [
        splits.random_split(frame, seed=seed),
        *splits.unseen_architecture(frame, folds=3, seed=seed),
        *splits.unseen_devices(frame, seed=seed),
        *splits.unseen_both(frame, "Tesla T4", folds=3, seed=seed),
        splits.torchvision_to_timm(frame, seed=seed),
        splits.cnn_to_transformer(frame, seed=seed),
        splits.neusight(frame, seed=seed),
    ]


def values(frame: pd.DataFrame, rows: np.ndarray, *columns: str) -> set:
    return set(frame.iloc[rows][list(columns)].itertuples(index=False, name=None))


def test_parts_share_no_row_and_every_split_has_validation_rows(frame):
    for split in all_splits(frame):
        parts = [set(part.tolist()) for part in (split.train, split.val, split.test)]
        assert all(parts), split.name
        assert sum(map(len, parts)) == len(set().union(*parts)), split.name


def test_same_seed_same_split_other_seed_other_split(frame):
    first, again, other = (all_splits(frame, seed) for seed in (0, 0, 1))
    key = lambda s: (s.name, s.train.tolist(), s.val.tolist(), s.test.tolist())  # noqa: E731
    assert [key(s) for s in first] == [key(s) for s in again]
    assert [key(s) for s in first] != [key(s) for s in other]


def test_architecture_folds_cover_every_row_once(frame):
    folds = splits.unseen_architecture(frame, folds=3)
    tested = np.concatenate([fold.test for fold in folds])
    assert sorted(tested.tolist()) == list(range(len(frame)))


def test_no_architecture_is_on_both_sides_under_another_name(frame):
    names = families.architectures(frame).to_numpy()
    for split in splits.unseen_architecture(frame, folds=3):
        assert not set(names[split.train]) & set(names[split.test])
        assert not values(frame, split.train, "family") & values(frame, split.test, "family")
        assert not values(frame, split.val, "family") & values(frame, split.test, "family")
        assert not values(frame, split.val, "family") & values(frame, split.train, "family")


def test_families_with_a_common_architecture_are_joined(frame):
    # mnasnet1_0 of torchvision is mnasnet_100 of timm, though their families have two names.
    for split in splits.unseen_architecture(frame, folds=3):
        for part in (split.train, split.val, split.test):
            models = {model for (model,) in values(frame, part, "model")}
            assert ("mnasnet1_0" in models) == ("mnasnet_100" in models)


@pytest.mark.parametrize("device", DEVICES)
def test_unseen_device_leaves_out_the_device_and_its_siblings(frame, device):
    split = splits.unseen_device(frame, device)
    assert values(frame, split.test, "device") == {(device,)}
    seen = {name for (name,) in values(frame, np.r_[split.train, split.val], "device")}
    assert splits.chip_name(device) not in {splits.chip_name(name) for name in seen}
    assert not values(frame, split.train, "device") & values(frame, split.val, "device")


def test_siblings_stay_when_asked_for(frame):
    split = splits.unseen_device(frame, "Tesla V100-PCIE-32GB", same_chip=True)
    seen = values(frame, np.r_[split.train, split.val], "device")
    assert ("Tesla V100-SXM2-16GB",) in seen
    assert ("Tesla V100-PCIE-32GB",) not in seen


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


def test_unseen_both_shares_neither_device_nor_family(frame):
    found = splits.unseen_both(frame, "Tesla T4", folds=3)
    assert len(found) == 3
    for split in found:
        assert values(frame, split.test, "device") == {("Tesla T4",)}
        for part in (split.train, split.val):
            assert ("Tesla T4",) not in values(frame, part, "device")
            assert not values(frame, part, "family") & values(frame, split.test, "family")


def test_torchvision_to_timm_drops_networks_that_both_have(frame):
    split = splits.torchvision_to_timm(frame)
    tested = {model for (model,) in values(frame, split.test, "model")}
    assert values(frame, split.train, "library") == {("torchvision",)}
    assert values(frame, split.test, "library") == {("timm",)}
    assert "resnet101" in tested
    assert not tested & {"resnet50", "tv_resnet50", "densenet121", "mnasnet_100"}


def test_cnn_to_transformer_leaves_hybrids_out(frame):
    split = splits.cnn_to_transformer(frame)
    everything = values(frame, np.r_[split.train, split.val, split.test], "family")
    assert ("mobilevit",) not in everything
    assert values(frame, split.test, "family") == {("vision_transformer",), ("deit",), ("bert",)}


def test_neusight_uses_its_own_devices(frame):
    split = splits.neusight(frame)
    assert values(frame, split.test, "device", "source") == {
        (device, "neusight") for device in splits.NEUSIGHT_TEST_DEVICES
    }
    used = {device for (device,) in values(frame, np.r_[split.train, split.val], "device")}
    assert used <= set(splits.NEUSIGHT_TRAIN_DEVICES)
    own = splits.neusight(frame, own_rows_only=True)
    assert values(frame, own.train, "source") == {("neusight",)}


def test_json_round_trip(frame, tmp_path):
    split = splits.unseen_device(frame, "Tesla T4")
    split.to_json(tmp_path / "split.json")
    loaded = Split.from_json(tmp_path / "split.json")
    assert loaded.name == split.name
    for part in ("train", "val", "test"):
        assert np.array_equal(getattr(loaded, part), getattr(split, part))


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"name": "x", "train": ["a"]}', "null"])
def test_a_file_that_is_no_split_is_an_error(tmp_path, text):
    (tmp_path / "split.json").write_text(text)
    with pytest.raises(DataError, match="not a split file"):
        Split.from_json(tmp_path / "split.json")


@pytest.mark.parametrize(
    ("train", "val", "test", "message"),
    [
        ([0, 1], [2], [], "no test rows"),
        ([0, 1], [2], [1], "row 1 is in training and in test"),
        ([0, 1], [1], [3], "row 1 is in training and in validation"),
        ([0, 1], [3], [3], "row 3 is in validation and in test"),
        ([0, 0], [2], [3], "repeats train rows"),
        ([0, 1], [2], [99], "another table"),
    ],
)
def test_broken_splits_are_refused(frame, train, val, test, message):
    parts = [np.array(rows, dtype=np.int64) for rows in (train, val, test)]
    with pytest.raises(DataError, match=message):
        check_split(Split("broken", *parts), frame.head(4))


def test_a_leaked_device_or_architecture_is_refused(frame):
    half = np.arange(len(frame))
    split = Split("leaky", half[::2], half[:0], half[1::2])
    with pytest.raises(DataError, match=r"device .* is in training and in test"):
        check_split(split, frame, by_device=True)
    with pytest.raises(DataError, match=r"group .* is in training and in test"):
        check_split(split, frame, groups=frame["family"].to_numpy())


def test_unknown_device_and_bad_numbers_are_errors(frame):
    with pytest.raises(ConfigError, match="Devices with rows: NVIDIA A100"):
        splits.unseen_device(frame, "RTX 9999")
    with pytest.raises(ConfigError, match="between 2 and"):
        splits.unseen_architecture(frame, folds=99)
    with pytest.raises(ConfigError, match="between 0 and 1"):
        splits.random_split(frame, test_share=1.5)


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
    assert families.family({"library": "timm", "model": "vit_base_patch16_224"}) == (
        "vision_transformer"
    )
    for library in ("timm", "torchvision"):
        assert families.family({"library": library, "model": "resnet50"}) == "resnet"
    assert families.family_of("timm", "convnext_tiny_hnfd") == "convnext"
    with pytest.raises(DataError, match="no family"):
        families.family_of("timm", "no_such_net")


def test_real_rows_split_without_leaks(data_dir):
    pytest.importorskip("timm")
    from prenet_gnn.data import read_measurements, training_rows

    frame = training_rows(read_measurements(data_dir))
    frame = frame.assign(family=families.families(frame))
    for split in splits.unseen_architecture(frame):
        assert 0.1 < len(split.test) / len(frame) < 0.3
        assert 0.03 < len(split.val) / len(frame) < 0.2
    found = splits.unseen_devices(frame)
    assert len(found) >= 30
    assert len(splits.neusight(frame).test) == 28
    assert len(splits.torchvision_to_timm(frame).test) > 20_000
    assert len(splits.cnn_to_transformer(frame).test) > 4_000
