"""Turns weights of the schema `prenet-weights-1` into those of today; predictions stay as they are.

    python -m experiments.convert_weights OLD_FOLDER NEW_FOLDER

Names of parameters follow the blocks of the network, and what had no effect on any prediction is
left behind: the device-relative correction that was switched off, and columns that nothing read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from experiments.shared.command import Option, Options, command
from prenet_gnn.encoding.latents import Latents
from prenet_gnn.errors import CheckpointError
from prenet_gnn.network.checkpoint import DESCRIPTION, WEIGHTS, Checkpoint, Facts, save_checkpoint
from prenet_gnn.network.config import NetworkConfig
from prenet_gnn.network.interval import Intervals
from prenet_gnn.network.latents import LatentSizes
from prenet_gnn.network.paired import build_network

OLD_SCHEMA = "prenet-weights-1"
BLOCKS = {
    "operator.": "encoder.operator.",
    "encoder.": "encoder.mlp.",
    "convs.": "encoder.convs.",
    "hidden_names": "encoder.hidden_names",
    "before_run.": "head.before_run.",
    "run_film.": "head.run_film.",
    "setting_film.": "head.setting_film.",
    "head.": "head.after_run.",
    "rate_logits": "physics.rates.logits",
    "memory_log": "physics.traffic.log",
    "kernel_log": "physics.launches.log",
    "kernel_clock": "physics.launches.clock_exponent",
    "spec_slopes": "physics.specifications.slopes",
    "old_fp64_log": "physics.effects.early_float64.log",
    "wide_log": "physics.effects.wide_depthwise.log",
    "issue_logit": "physics.effects.issue_rate.logit",
    "fill_log": "physics.effects.part_waves.log",
    "cache_share": "physics.effects.cache.share",
    "cache_size": "physics.effects.cache.size",
    "fuse_logit": "physics.effects.compiler_fusion.logit",
    "call_log": "host.cost_log",
    "kind_calls": "host.kind_log",
    "run_calls.": "host.run.",
    "host_year": "host.year",
    "step_log": "step.log",
    "floor_log": "readout.floor_log",
    "sharpness": "readout.sharpness",
    "device_latent": "latents.device",
    "host_latent": "latents.host",
    "framework_latent": "latents.framework",
    "device_setting": "latents.device_setting",
    "host_setting": "latents.host_setting",
}
LEFT_BEHIND = ("device_head.", "class_of_kind")
PAIRED = ("general.", "known.")


def renamed(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The parameters of one network under the names of today."""
    found = {}
    for name, value in state.items():
        if name.startswith(LEFT_BEHIND):
            continue
        old = max((each for each in BLOCKS if name.startswith(each)), key=len)
        if name == "call_log":
            value = value[0, :5]
        if name == "step_log":
            value = value[:4]
        found[BLOCKS[old] + name[len(old) :]] = value
    return found


def blocks_of(flat: dict[str, Any]) -> dict[str, Any]:
    """The settings of a network by block."""
    if flat.get("use_device_head"):
        raise CheckpointError("these weights use the device-relative correction, which is gone.")
    encoder = ("hidden", "layers", "conv", "operator_embedding", "dropout", "operator_dropout")
    return {
        "encoder": {name: flat[name] for name in encoder},
        "head": {"hidden": flat["head_hidden"]},
        "latents": {"settings": flat["setting_latents"]},
    }


def convert(source: Path, target: Path) -> None:
    """Reads old weights and writes them anew.

    Raises:
        CheckpointError: They are of another schema.
    """
    old = json.loads((source / DESCRIPTION).read_text(encoding="utf-8"))
    if old.get("schema") != OLD_SCHEMA:
        raise CheckpointError(f"'{source}' is of schema {old.get('schema')!r}, not {OLD_SCHEMA}.")
    config = NetworkConfig.from_dict(blocks_of(old["config"]))
    latents = Latents.from_dict(old["latents"])
    tensors, models = load_file(source / WEIGHTS), []
    for number in range(old["members"]):
        own = {n.removeprefix(f"{number}."): t for n, t in tensors.items()
               if n.startswith(f"{number}.")}  # fmt: skip
        state = {}
        for part in PAIRED if config.latents.settings else ("",):
            of_part = {n[len(part) :]: t for n, t in own.items() if n.startswith(part)}
            state |= {part + name: value for name, value in renamed(of_part).items()}
        model = build_network(config, LatentSizes.of(latents))
        model.load_state_dict(state)
        models.append(model.eval())
    facts = {**old["facts"], "run": [_run(each) for each in old["facts"]["run"]]}
    intervals = Intervals.from_dict(old["intervals"])
    save_checkpoint(
        Checkpoint(tuple(models), config, latents, intervals, Facts.from_dict(facts)), target
    )


def _run(old: dict[str, Any]) -> dict[str, Any]:
    """The settings of a fit with the blocks of today."""
    train = {name: value for name, value in old["train"].items() if name != "correction_penalty"}
    model = NetworkConfig.from_dict(blocks_of(old["model"])).to_dict()
    return {**old, "model": model, "train": train}


@command(
    Option("source", type=Path, help="folder with old weights"),
    Option("target", type=Path, help="folder for the new ones"),
)
def main(options: Options) -> None:
    """Converts one folder."""
    convert(options.source, options.target)
    print(f"converted '{options.source}' to '{options.target}'")


if __name__ == "__main__":
    main()
