"""Answers a whole table of jobs: each model is traced once, and a bad row harms no other."""

from __future__ import annotations

import csv
import io
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING

from prenet_gnn.common.processes import run_all
from prenet_gnn.errors import DataError, PreNetError
from prenet_gnn.predictor.jobs import Job, TraceRequest, parse_job

if TYPE_CHECKING:
    from prenet_gnn.predictor.interface import TimePredictor
    from prenet_gnn.predictor.prediction import Prediction
    from tracing import OpGraph

# Starting a process costs about as much as tracing this many models.
FEW_MODELS = 4
LONGEST_REASON = 300

Graphs = dict[int, "OpGraph | str"]
"""For each batch size its graph, or the reason why there is none."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known about one row; either a prediction or the reason why there is none."""

    seconds: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    peak_memory_bytes: int | None = None
    error: str = ""

    @classmethod
    def of(cls, prediction: Prediction) -> Answer:
        """Takes over the fields of a prediction."""
        return cls(
            prediction.seconds, prediction.low_s, prediction.high_s, prediction.peak_memory_bytes
        )

    def to_dict(self) -> dict[str, float | int | str | None]:
        """Gives the fields by name."""
        return asdict(self)

    def to_text(self) -> dict[str, str]:
        """Gives the fields as text, empty where nothing is known."""
        return {name: _text(value) for name, value in self.to_dict().items()}


ANSWER_COLUMNS = tuple(field.name for field in fields(Answer))


def answer_rows(
    rows: Sequence[Mapping[str, str]],
    predictor: TimePredictor,
    *,
    workers: int | None = None,
    progress: Callable[[int], None] = lambda count: None,
) -> list[Answer]:
    """Answers each row, in order.

    Args:
        rows: Text fields by column name, as `predictor.jobs.read_rows` gives them.
        predictor: Answers the questions.
        workers: Processes that trace; one per core if None, and none for a few models.
        progress: Called with the number of rows just finished.
    """
    answers: list[Answer] = [Answer()] * len(rows)
    groups: dict[TraceRequest, list[tuple[int, Job]]] = defaultdict(list)
    for index, row in enumerate(rows):
        try:
            job = _checked(row)
            groups[job.request].append((index, job))
        except Exception as error:
            answers[index] = Answer(error=reason_of(error))
    progress(sum(bool(answer.error) for answer in answers))
    tasks = {
        request: tuple(sorted({job.batch_size for _, job in members}))
        for request, members in groups.items()
    }
    for request, graphs in trace_all(tasks, workers):
        members = groups[request]
        for (index, _), answer in zip(members, _answer(members, graphs, predictor), strict=True):
            answers[index] = answer
        progress(len(members))
    return answers


def to_csv(
    columns: Sequence[str], rows: Sequence[Mapping[str, str]], answers: Sequence[Answer]
) -> str:
    """Lays out the same rows with the answers behind them; old answers are replaced."""
    header = [*columns, *(name for name in ANSWER_COLUMNS if name not in columns)]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, header, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for row, answer in zip(rows, answers, strict=True):
        writer.writerow({**row, **answer.to_text()})
    return text.getvalue()


def _text(value: float | int | str | None) -> str:
    if value is None:
        return ""
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def reason_of(error: Exception) -> str:
    """Says in one line of bounded length why something failed."""
    from tracing import TraceError

    text = " ".join(str(error).split())
    if not isinstance(error, (PreNetError, TraceError)):
        text = f"{type(error).__name__}: {text}"
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 3] + "..."


def trace_request(request: TraceRequest, batch_size: int) -> OpGraph:
    """Builds and traces one model at one batch size.

    Raises:
        TraceError: The model cannot be built or traced, or its code ends the process.
    """
    from tracing import TraceError, trace, zoo

    model, args, kwargs = zoo.build(
        request.model,
        batch_size=batch_size,
        image_size=request.image_size,
        seq_len=request.seq_len,
        mode=request.mode,
        attention=request.attention,
    )
    try:
        return trace(model, args, kwargs)
    except SystemExit as stop:
        raise TraceError(f"the code of '{request.model}' ends the process: {stop!r}") from None


def trace_sizes(task: tuple[TraceRequest, Sequence[int]]) -> Graphs:
    """Traces a model once and resizes the trace, anew only where a model does not allow that.

    The graphs come without their way back to the model, so that they can cross to another process.
    """
    from tracing import BATCH_MARKER, zoo

    request, batch_sizes = task
    try:
        marker: OpGraph | None = trace_request(request, BATCH_MARKER)
    except zoo.ZooError as error:
        return dict.fromkeys(batch_sizes, reason_of(error))
    except Exception:
        marker = None
    graphs: Graphs = {}
    for batch_size in batch_sizes:
        try:
            graph = _resized(marker, request, batch_size)
            graphs[batch_size] = replace(graph, retrace=None)
        except Exception as error:
            graphs[batch_size] = reason_of(error)
    return graphs


def _resized(marker: OpGraph | None, request: TraceRequest, batch_size: int) -> OpGraph:
    from tracing import TraceError

    if marker is not None:
        with suppress(TraceError):
            return marker.with_batch_size(batch_size)
    return trace_request(request, batch_size)


def trace_all(
    tasks: Mapping[TraceRequest, Sequence[int]], workers: int | None = None
) -> Iterator[tuple[TraceRequest, Graphs]]:
    """Traces all models, in parallel where there are many; gives each as soon as it is there."""
    if workers is None:
        workers = 1 if len(tasks) <= FEW_MODELS else os.cpu_count() or 1
    for outcome in run_all(trace_sizes, tasks.items(), workers if workers > 1 else 0):
        request, batch_sizes = outcome.task
        graphs = outcome.result
        if graphs is None:
            died = f"the process that traced {request.model} ended abruptly"
            graphs = dict.fromkeys(batch_sizes, f"{died}; is there enough memory?")
        yield request, graphs


def _checked(row: Mapping[str, str]) -> Job:
    from prenet_gnn.catalogue.devices import get_hardware

    if row.get(""):
        raise DataError(f"the row has more fields than the table has columns: '{row['']}'.")
    job = parse_job(row)
    get_hardware(job.hardware)
    return job


def _answer(
    members: Sequence[tuple[int, Job]], graphs: Graphs, predictor: TimePredictor
) -> list[Answer]:
    answers: list[Answer] = []
    asked: list[tuple[int, OpGraph, Job]] = []
    for place, (_, job) in enumerate(members):
        graph = graphs[job.batch_size]
        if isinstance(graph, str):
            answers.append(Answer(error=graph))
        else:
            answers.append(Answer())
            asked.append((place, graph, job))
    if not asked:
        return answers
    try:
        predictions = predictor.predict_many(
            [graph for _, graph, _ in asked],
            hardware=[job.hardware for _, _, job in asked],
            workloads=[job.workload for _, _, job in asked],
        )
        found = [Answer.of(prediction) for prediction in predictions]
    except Exception:
        found = [_answer_one(graph, job, predictor) for _, graph, job in asked]
    for (place, _, _), answer in zip(asked, found, strict=True):
        answers[place] = answer
    return answers


def _answer_one(graph: OpGraph, job: Job, predictor: TimePredictor) -> Answer:
    try:
        return Answer.of(predictor.predict(graph, hardware=job.hardware, workload=job.workload))
    except Exception as error:
        return Answer(error=reason_of(error))
