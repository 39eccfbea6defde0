"""Redoes the generated parts of docs/plan_and_compare.md, and the report's screenshot.

    python -m experiments.plan_docs [--only resnet50] [--no-screenshot]

Runs every command that the page shows, in this process, and writes down what it prints; measures
how long comparing all devices takes; puts in the tables of `experiments.multi_gpu` and
`experiments.device_ranking`. Run it again after new weights are shipped.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import shlex
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from experiments.browser import find_browser, opened
from experiments.provenance import RESULTS, provenance, write_result
from experiments.readme import fill_output, fill_table

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = DOCS / "plan_and_compare.md"
IMAGE = DOCS / "images" / "report.png"
REPEATS = 7
MODELS = {
    "resnet50": ("timm:resnet50", None, 64),
    "bert-large": ("transformers:bert-large-uncased", 512, 16),
    "llama-3-8b": ("transformers:llama-3-8b", 2048, 1),
}
SCREENSHOT_SIZE = (1180, 900)


def shown_commands() -> dict[str, list[str]]:
    """Commands of the page by the name of the block that follows them."""
    text = PAGE.read_text(encoding="utf-8")
    pattern = r"```bash\nprenet (.*?)```\n+<!-- ([\w:.-]+) -->"
    found = re.findall(pattern, text, re.DOTALL)
    return {name: shlex.split(words.replace("\\\n", " ")) for words, name in found}


def printed(words: list[str]) -> str:
    """What a command prints on both channels; a failure is printed as well."""
    from prenet_gnn.cli import main as prenet

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = prenet(words)
    lines = [line.rstrip() for line in (out.getvalue() + err.getvalue()).splitlines()]
    return "\n".join(lines) + (f"\n(exit status {status})" if status else "")


@contextlib.contextmanager
def shared_traces() -> Iterator[None]:
    """Lets commands on one model share its trace, so that the page takes minutes, not an hour."""
    from prenet_gnn.predictor import bulk

    known: dict[Any, Any] = {}
    original: Callable[..., Any] = bulk.trace_request

    def trace_request(request: Any, batch_size: int) -> Any:
        from tracing import BATCH_MARKER

        if request not in known:
            known[request] = original(request, BATCH_MARKER)
        return known[request].with_batch_size(batch_size)

    bulk.trace_request = trace_request
    try:
        yield
    finally:
        bulk.trace_request = original


def speed(names: list[str]) -> list[dict[str, Any]]:
    """How long one model on all devices takes after its trace: first call, and the median of more.

    Seconds of this process, so that other load on the machine does not count.
    """
    from prenet_gnn import Workload, list_hardware, load_predictor, planner
    from tracing import BATCH_MARKER, trace, zoo

    found = []
    for name in names:
        spec, seq_len, batch_size = MODELS[name]
        predictor = load_predictor()
        model, args, kwargs = zoo.build(spec, batch_size=BATCH_MARKER, seq_len=seq_len)
        graph = trace(model, args, kwargs).with_batch_size(batch_size)
        times = []
        for _ in range(REPEATS):
            start = time.process_time()
            result = planner.compare(graph, predictor, Workload())
            times.append(time.process_time() - start)
        found.append(
            {
                "model": spec,
                "operators": len(graph.nodes),
                "devices": len(result.devices),
                "first_s": times[0],
                "again_s": statistics.median(times[1:]),
            }
        )
    found[0]["catalogue"] = len(list_hardware())
    return found


def speed_table(rows: list[dict[str, Any]]) -> str:
    """The speed figures in Markdown."""
    lines = [
        "| model | operators | devices | first call | further calls |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['model']} | {r['operators']} | {r['devices']} | {r['first_s']:.2f} s "
        f"| {r['again_s']:.2f} s |"
        for r in rows
    ]
    return "\n".join(lines)


def parallel_table() -> str:
    """The result of `experiments.multi_gpu` in Markdown."""
    lines = [
        "| method | rows | MAPE | worst | with one device measured | MAPE of the parallel part |",
        "|---|---|---|---|---|---|",
    ]
    for r in _result("multi_gpu"):
        part = r["mape_parallel_part"]
        lines.append(
            f"| {r['method']} | {r['rows']} | {r['mape']:.1%} | {r['worst_ape']:.1%} | "
            f"{r['rows_single_measured']} | {'-' if part is None else f'{part:.1%}'} |"
        )
    return "\n".join(lines)


def ranking_table() -> str:
    """The result of `experiments.device_ranking` in Markdown."""
    lines = [
        "| mode | order by | groups | devices | Spearman, mean | pairs in order | regret, mean |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['mode']} | {r['order']} | {r['groups']} | {r['devices']} | "
        f"{r['spearman_mean']:.3f} | {r['pairs_right']:.1%} | {r['regret_mean']:.1%} |"
        for r in _result("device_ranking")
    ]
    return "\n".join(lines)


def _result(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((RESULTS / f"{name}.json").read_text())["rows"]
    return rows


def screenshot(report: Path) -> None:
    """Photographs a report in the system's browser."""
    if find_browser() is None:
        print("no browser: the screenshot stays as it is")
        return
    IMAGE.parent.mkdir(exist_ok=True)
    with opened(report, *SCREENSHOT_SIZE) as loaded:
        loaded.page.wait_for_selector("#chart-memory .main-svg")
        loaded.page.screenshot(path=IMAGE, full_page=True)
    _shrink(IMAGE)


def _shrink(path: Path) -> None:
    """Fewer colours make charts a third as large."""
    from PIL import Image

    with Image.open(path) as image:
        image.convert("RGB").quantize(64).save(path, optimize=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="only the blocks whose name holds this")
    parser.add_argument("--no-screenshot", action="store_true")
    parser.add_argument("--no-speed", action="store_true")
    args = parser.parse_args()
    # before the page is written, which git would count as a change
    made = provenance("python -m experiments.plan_docs")
    with shared_traces(), tempfile.TemporaryDirectory() as folder:
        for name, words in shown_commands().items():
            if args.only and args.only not in name:
                continue
            print(f"$ prenet {shlex.join(words)}", flush=True)
            place = [str(Path(folder) / word) if word.endswith(".html") else word for word in words]
            text = printed(place)
            print(text, flush=True)
            fill_output(name, text, PAGE)
        reports = sorted(Path(folder).glob("*.html"))
        if reports and not args.no_screenshot:
            screenshot(reports[0])
    if not args.no_speed and not args.only:
        rows = speed(list(MODELS))
        write_result("compare_speed", {**made, "rows": rows})
    for name, table in (
        ("speed", lambda: speed_table(_result("compare_speed"))),
        ("parallel", parallel_table),
        ("ranking", ranking_table),
    ):
        try:
            fill_table(name, table(), PAGE)
        except FileNotFoundError as error:
            print(f"table '{name}' stays as it is: {error.filename} does not exist")


if __name__ == "__main__":
    main()
