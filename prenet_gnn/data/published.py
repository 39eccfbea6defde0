"""Training runs that others published with the whole system known: host, driver and software."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

from prenet_gnn.data.reading import FIRST_LINE, RowProblem, lines
from prenet_gnn.data.schema import PUBLISHED
from prenet_gnn.data.tables import normalise, phase_problems, read_tables, torch_version
from prenet_gnn.workload.workload import PHASES

PUBLISHED_FILE = "measurements_lambda.csv.gz"
# Phases of these tables that `Workload` does not have: the progress bar of a script.
OTHER_PHASES = ("logging",)
# Class of a model with a head, by the first part of the model's name.
HEADS = {("bert", "question-answering"): "BertForQuestionAnswering"}
# NVIDIA's BERT has attention code of its own, which is not fused under any version.
ATTENTION = {"transformers": "eager"}
# `free -h` writes powers of 1024 with or without the i, by its version.
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)([GT])i?")
_BYTES = {"G": 2**30, "T": 2**40}


def read_published(data_dir: str | Path) -> pd.DataFrame:
    """Reads the published training runs, in SI units.

    No network is fitted to these rows: `training_rows` and `prepare_rows` do not see them.

    Columns are spelled as in `read_measurements`, with `model` as the zoo names it with its head
    (`bert-base-uncased@BertForQuestionAnswering`), and: `run_id`, `system_id` (one machine with one
    software stack), `head`, `attention` (`eager`; empty where the framework decides), `host_cpu`,
    `host_memory_bytes`, `driver`, `os`, `board`, `runs` (repeats, of which the row is the median)
    and `runs_spread` (slowest over fastest repeat, less 1). `batch_size` is that of one GPU.
    `timed` is without the script's logging.

    Raises:
        DataError: The file is damaged, lacks a column or holds a value of the wrong type or range.
    """
    frame = read_tables(Path(data_dir), (PUBLISHED_FILE,), PUBLISHED, published_problems)
    frame["framework"] = frame["framework"].map(_framework)
    frame["cuda"] = frame["cuda"].str.removeprefix("V")
    frame["host_memory_bytes"] = frame.pop("host_memory").map(_memory_bytes)
    frame["attention"] = frame["library"].map(lambda library: ATTENTION.get(library, ""))
    pairs = zip(frame["model"], frame["head"], strict=True)
    frame["model"] = [_with_head(model, head) for model, head in pairs]
    frame["runs"] = frame["runs"].astype(int)
    return normalise(frame, PUBLISHED)


def published_problems(frame: pd.DataFrame, file: str) -> list[RowProblem]:
    """Rows with a value that is no phase, head, version or size, and repeated names of runs."""
    found = phase_problems(frame, file, (*PHASES, *OTHER_PHASES))
    pairs = list(zip(frame["model"], frame["head"], strict=True))
    wrong = {
        "head": ([not _with_head(*pair) for pair in pairs], "is no head known for this model"),
        "framework": (
            frame["framework"].map(lambda text: not torch_version(_framework(text))),
            "is no version of PyTorch",
        ),
        "host_memory": (
            frame["host_memory"].map(lambda text: not _MEMORY.fullmatch(text)),
            "is no size such as 503Gi",
        ),
        "run_id": (frame["run_id"].duplicated(), "is the name of an earlier run"),
    }
    for column, (mask, problem) in wrong.items():
        values = frame[column]
        found += [
            RowProblem(file, line, column, f"'{values.iloc[line - FIRST_LINE]}' {problem}")
            for line in lines(pd.Series(mask) & (values != ""))
        ]
    return found


def _framework(text: str) -> str:
    """`PyTorch 1.13.0a0+d0d6b1f` in the spelling of `Workload`."""
    return re.sub(r"^PyTorch ", "torch-", text)


def _memory_bytes(text: str) -> float:
    found = _MEMORY.fullmatch(text)
    return float(found[1]) * _BYTES[found[2]] if found else float("nan")


def _with_head(model: str, head: str) -> str:
    """The zoo's name of a model with a head; empty where the head is not known."""
    if not head:
        return model
    name = HEADS.get((model.partition("-")[0], head))
    return f"{model}@{name}" if name else ""
