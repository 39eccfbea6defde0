"""Rates of arithmetic read off measured rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from test_training import made_up_rows

from experiments.rates import rates
from prenet_gnn.errors import PreNetError


def test_rates_are_flops_over_time_clock_and_multiprocessors() -> None:
    rows = made_up_rows()
    # the same rows twice, as inference and as training steps of three times the time
    frame = pd.concat([rows.frame.assign(mode="infer"), rows.frame], ignore_index=True)
    both = replace(
        rows,
        frame=frame,
        keys=rows.keys * 2,
        workloads=rows.workloads * 2,
        seconds=np.concatenate([rows.seconds, 3 * rows.seconds]),
    )
    table = rates(both, "net_64_4").set_index("device")
    assert len(table) == 3
    work = rows.store.entries[rows.keys[3]]
    flops = work.counts @ work.pair("flops")
    t4 = table.loc["Tesla T4"]
    # 40 multiprocessors at 1.59 GHz (the catalogue)
    lanes = 40 * 1.59e9
    assert t4["forward"] == pytest.approx(flops[0] / rows.seconds[3] / lanes)
    assert t4["backward"] == pytest.approx(flops[1] / (2 * rows.seconds[3]) / lanes)
    assert t4["data sheet"] == pytest.approx(128, rel=0.02)
    assert rates(both, "net_64_4", "fp32").equals(rates(both, "net_64_4"))


@pytest.mark.parametrize("asked", [("nothing", None), ("net_64_4", "fp64")])
def test_a_model_without_rows_is_named(asked: tuple[str, str | None]) -> None:
    with pytest.raises(PreNetError, match=asked[0]):
        rates(made_up_rows(), *asked)
