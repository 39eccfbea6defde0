"""Verdicts on memory and what other tools are asked, without measured data."""

from dataclasses import replace

import pandas as pd
import pytest
import torch
from torch import nn

from experiments.memory import tools as memory_tools
from experiments.memory.cases import SHARES, Case
from experiments.memory.peaks import peak_rows
from experiments.memory_verdict import fitted_constants, halves, verdicts
from prenet_gnn.memory.peak import ALLOWANCE, MIB

GIB = 2**30


def case(family, batch_size, fitted, need, **asked):
    return Case(family, family, False, batch_size, fitted, (int(need),) * len(SHARES),
                int(23.7 * GIB), 24 * GIB, asked)  # fmt: skip


FOUND = [
    case("a", 256, True, 15 * GIB, accelerate=GIB), case("a", 384, False, 25 * GIB, accelerate=GIB),
    case("b", 256, True, 18 * GIB, kitsune=30 * GIB), case("b", 384, False, 26 * GIB, kitsune=GIB),
]  # fmt: skip


def test_verdicts_of_all_tools_are_judged_at_both_ends():
    rows, fitted = verdicts(FOUND, seed=0)
    by_group = {row["group"]: row for row in rows}
    ours = by_group["all, shipped (not held out)"]
    assert (ours["fits_right"], ours["one_up_right"]) == (1.0, 1.0)
    assert (by_group["accelerate"]["fits_right"], by_group["accelerate"]["one_up_right"]) == (1, 0)
    assert (by_group["kitsune"]["fits_right"], by_group["kitsune"]["one_up_right"]) == (0, 0)
    assert by_group["ours where kitsune answers"]["verdicts"] == 2
    assert fitted.fragmentation >= 1.0


def test_halves_share_no_family():
    first, second = halves(FOUND, seed=0)
    assert not {c.family for c in first} & {c.family for c in second}
    assert len(first) + len(second) == len(FOUND)


def test_constants_follow_the_verdicts():
    tight = [case("a", 2, True, 22.9 * GIB), case("b", 3, False, 23.3 * GIB)]
    allowance = fitted_constants(tight)
    assert all(c.fits(allowance) == c.fitted for c in tight)
    assert not tight[0].fits(replace(ALLOWANCE, fragmentation=1.5))


def test_kitsune_keeps_half_a_gibibyte_free():
    assert memory_tools.fits("accelerate", 24 * GIB, 24 * GIB)
    assert not memory_tools.fits("kitsune", 24 * GIB - 100 * MIB, 24 * GIB)
    assert memory_tools.fits("kitsune", 23 * GIB, 24 * GIB)


def test_a_tool_that_fails_has_no_answer(monkeypatch, capsys):
    def fails(question):
        raise RuntimeError("no such layer")

    monkeypatch.setattr(memory_tools, "installed", lambda: {"kitsune": "1", "accelerate": "1"})
    monkeypatch.setattr(memory_tools, "ASKED", {"kitsune": fails, "accelerate": lambda q: 7})
    question = memory_tools.Question(nn.Linear(1, 1), (1,), 1, False, "sgd")
    assert memory_tools.answers(question, 4, "fp32", "sgd") == {"accelerate": 7}
    assert "kitsune has no answer: no such layer" in capsys.readouterr().out
    assert memory_tools.answers(None, 4, "fp32", "sgd") == {}


def test_peaks_are_summed_up_by_source_and_predictor():
    table = pd.DataFrame(
        [
            {"source": "s", "model": "m", "ours": 0.1, "kitsune": None},
            {"source": "s", "model": "n", "ours": -0.3, "kitsune": 1.0},
        ]
    )
    rows = {(row["source"], row["predictor"]): row for row in peak_rows(table)}
    assert rows["s", "ours"] == {"source": "s", "predictor": "ours", "peaks": 2, "mape": 0.2,
                                 "bias": -0.1}  # fmt: skip
    assert rows["s", "kitsune"]["peaks"] == 1
    assert peak_rows(pd.DataFrame()) == []


@pytest.mark.parametrize("tool", list(memory_tools.TOOLS))
def test_tools_answer_for_a_small_network(tool):
    if tool not in memory_tools.installed():
        pytest.skip(f"{tool} is not installed")
    with torch.device("meta"):
        model = nn.Sequential(nn.Flatten(), nn.Linear(1024, 1024))
    question = memory_tools.Question(model, (1024,), 8, half=False, optimizer="adamw")
    weights = 4 * (1024 * 1024 + 1024)
    assert memory_tools.ASKED[tool](question) >= 4 * weights
