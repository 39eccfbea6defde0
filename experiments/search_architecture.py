"""Which small GPT becomes best within a budget of time or money on one device? Copy and change it.

    python -m experiments.search_architecture --hardware "NVIDIA A100-SXM4-40GB" --hours 24
    python -m experiments.search_architecture --hardware "NVIDIA H100-SXM5-80GB" --usd 50

Optuna searches width, depth, batch size and precision. Each trial asks the predictor how long an
iteration takes; the budget then gives the tokens that training sees, and a scaling law the loss
that can be hoped for (Hoffmann et al. 2022, approach 3). What does not fit into memory is pruned. A
second loop keeps the model and varies batch size, precision and device only: it needs no new trace
and runs at tens of trials per second. Replace `GPT` by your model and `hoped_for_loss` by your
score.
"""

from __future__ import annotations

import functools
import time
from typing import Any

import optuna
import torch
from torch import nn

from experiments.shared import markdown
from experiments.shared.command import OUT, QUICK, SEED, Option, Options, command
from experiments.shared.results import Result, folder_of, provenance, write_result
from prenet_gnn import Workload, load_predictor
from prenet_gnn.catalogue.devices import get_hardware
from prenet_gnn.catalogue.prices import hourly_prices
from tracing import OpGraph, trace

TOKENS, VOCABULARY = 512, 32_000
BATCHES, PRECISIONS = (4, 8, 16, 32, 64, 128), ("fp32", "amp_bf16", "bf16")
SEARCHED = ("width", "depth", "batch_size", "precision", "device")
WIDTHS, DEPTHS = (256, 384, 512, 768, 1024, 1536), (4, 6, 8, 12, 16, 24)
DEVICES = (
    "NVIDIA A100-SXM4-40GB", "NVIDIA H100-SXM5-80GB", "NVIDIA GeForce RTX 4090", "NVIDIA L4",
    "Tesla T4", "Tesla V100-SXM2-16GB",
)  # fmt: skip


class Block(nn.Module):
    """Attention and a wide layer, each with a way around it."""

    def __init__(self, width: int, heads: int) -> None:
        """Makes one block."""
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`(B, S, D)` -> `(B, S, D)`."""
        batch, length, width = x.shape
        parts = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.wide(self.norms[1](x))


class GPT(nn.Module):
    """A small language model; its forward pass gives the loss."""

    def __init__(self, width: int, depth: int) -> None:
        """Makes the model with heads of 64 channels."""
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.places = nn.Embedding(TOKENS, width)
        self.blocks = nn.Sequential(*(Block(width, width // 64) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy of the next token."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.blocks(self.tokens(tokens) + self.places(places))
        return nn.functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


@functools.cache
def traced(width: int, depth: int) -> OpGraph:
    """The training step of a model; made on meta tensors, so its size costs no memory."""
    with torch.device("meta"):
        model = GPT(width, depth)
        tokens = torch.zeros(8, TOKENS, dtype=torch.int64)
        return trace(model, (tokens, torch.zeros_like(tokens)))


@functools.cache
def graph_at(width: int, depth: int, batch_size: int) -> OpGraph:
    """The same at another batch size, without a new trace."""
    return traced(width, depth).with_batch_size(batch_size)


def hoped_for_loss(parameters: float, tokens: float) -> float:
    """Loss of a language model of a size after so many tokens (Hoffmann et al. 2022)."""
    return 1.69 + 406.4 / parameters**0.34 + 410.7 / tokens**0.28


def search(hardware: str, budget_s: float, trials: int, seed: int) -> optuna.Study:
    """Searches the family for the best loss within a budget on one device."""
    predictor = load_predictor()

    def objective(trial: optuna.Trial) -> float:
        width = trial.suggest_categorical("width", WIDTHS)
        depth = trial.suggest_categorical("depth", DEPTHS)
        batch_size = trial.suggest_categorical("batch_size", BATCHES)
        precision = trial.suggest_categorical("precision", PRECISIONS)
        graph = graph_at(width, depth, batch_size)
        p = predictor.predict(graph, hardware, Workload(precision=precision, optimizer="adamw"))
        tokens = batch_size * TOKENS * budget_s / p.seconds
        trial.set_user_attr("step_s", p.seconds)
        trial.set_user_attr("parameters", graph.total_params)
        trial.set_user_attr("tokens", tokens)
        if not p.fits:
            raise optuna.TrialPruned
        return hoped_for_loss(graph.total_params, tokens)

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(objective, n_trials=trials, show_progress_bar=True)
    return study


def fast_loop(
    width: int, depth: int, trials: int, seed: int
) -> tuple[optuna.Study, dict[str, float]]:
    """Tokens per dollar of one model over batch size, precision and device, and its speed."""
    predictor = load_predictor()
    rates = hourly_prices([get_hardware(name) for name in DEVICES])

    def objective(trial: optuna.Trial) -> float:
        batch_size = trial.suggest_categorical("batch_size", BATCHES)
        precision = trial.suggest_categorical("precision", PRECISIONS)
        device = trial.suggest_categorical("device", sorted(rates))
        graph = graph_at(width, depth, batch_size)
        p = predictor.predict(graph, device, Workload(precision=precision, optimizer="adamw"))
        if not p.fits:
            raise optuna.TrialPruned
        return batch_size * TOKENS / p.seconds * 3600 / rates[device].usd_per_hour

    traced(width, depth)
    predictor.predict(graph_at(width, depth, 4), DEVICES[0])  # loads what the first call loads
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.RandomSampler(seed=seed)
    )
    started, cpu = time.perf_counter(), time.process_time()
    study.optimize(objective, n_trials=trials)
    speed = {
        "trials_per_second": trials / (time.perf_counter() - started),
        "trials_per_cpu_second": trials / (time.process_time() - cpu),
    }
    return study, speed


def best_of(study: optuna.Study) -> dict[str, Any]:
    """The best trial as plain data."""
    pruned = sum(t.state == optuna.trial.TrialState.PRUNED for t in study.trials)
    best = study.best_trial
    return {
        "value": best.value, **best.params, **best.user_attrs,
        "trials": len(study.trials), "pruned_for_memory": pruned,
    }  # fmt: skip


def table(result: Result) -> str:
    """What the search found, and how fast the loop without new traces is."""
    fast = result["fast_loop"]
    title = f"best loss in {result['hours']:g} h on {result['hardware']}"
    lines = [
        {"searched": title, "form": ".3f", **result["best"]},
        {"searched": "tokens per dollar of that model", "form": ".2e", **fast["best"]},
    ]
    columns = {
        "searched": "{searched}",
        "found": lambda line: ", ".join(
            f"{name.replace('_', ' ')} {line[name]}" for name in SEARCHED if name in line
        ),
        "value": lambda line: format(line["value"], line["form"]),
        "trials": "{trials} ({pruned_for_memory} pruned)",
    }
    speed = (
        f"Trials that change batch size, precision or device only: {fast['trials_per_second']:.0f} "
        f"per second ({fast['trials_per_cpu_second']:.0f} per second of the processor)."
    )
    return markdown.signed(result, markdown.table(lines, columns), speed)


@command(
    Option("--hardware", default="NVIDIA A100-SXM4-40GB"),
    Option("--hours", type=float, default=24.0, help="budget of training time"),
    Option("--usd", type=float, help="budget of money instead, at the cheapest price"),
    Option("--trials", type=int, default=150),
    SEED,
    QUICK,
    OUT,
)
def main(options: Options) -> None:
    """Searches within the budget, then varies the found model's batch size and device."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    hours = options.hours
    if options.usd is not None:
        rate = hourly_prices([get_hardware(options.hardware)])
        if not rate:
            raise SystemExit(f"no price of {options.hardware} is known: give --hours")
        hours = options.usd / next(iter(rate.values())).usd_per_hour
    trials = 8 if options.quick else options.trials
    best = best_of(search(options.hardware, 3600 * hours, trials, options.seed))
    study, speed = fast_loop(best["width"], best["depth"], 4 * trials, options.seed)
    result = {
        "hardware": options.hardware, "hours": hours, "best": best,
        "fast_loop": {**speed, "best": best_of(study)}, **provenance(),
    }  # fmt: skip
    write_result("search", result, options.out or folder_of(options.quick))
    print(table(result))


if __name__ == "__main__":
    main()
