"""Redoes the generated parts of docs/plan_and_compare.md, and the report's screenshot.

    python -m experiments.plan_docs [--only resnet50] [--no-screenshot]

Runs every command that the page shows, in this process, and writes down what it prints; measures
how long comparing all devices takes; puts in the tables of `experiments.multi_gpu` and
`experiments.device_ranking`. Run it again after new weights are shipped.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import statistics
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from experiments import device_ranking, multi_gpu
from experiments.shared import markdown
from experiments.shared.browser import find_browser, opened
from experiments.shared.command import Option, Options, command
from experiments.shared.markdown import DOCS, fill_output
from experiments.shared.results import Result, provenance, read_result, write_result
from experiments.shared.timing import MODELS, cpu_s
from experiments.writing.pages import put

PAGE = DOCS / "plan_and_compare.md"
IMAGE = DOCS / "images" / "report.png"
REPEATS = 7
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


def speed() -> list[dict[str, Any]]:
    """How long one model on all devices takes after its trace: first call, and the median of more.

    Seconds of this process, so that other load on the machine does not count.
    """
    from prenet_gnn import Workload, list_hardware, load_predictor, planner
    from tracing import BATCH_MARKER, trace, zoo

    found = []
    for spec, batch_size, seq_len in MODELS.values():
        predictor = load_predictor()
        model, args, kwargs = zoo.build(spec, batch_size=BATCH_MARKER, seq_len=seq_len)
        graph = trace(model, args, kwargs).with_batch_size(batch_size)
        compare = partial(planner.compare, graph, predictor, Workload())
        first, *again = [cpu_s(compare) for _ in range(REPEATS)]
        found.append(
            {
                "model": spec,
                "operators": len(graph.nodes),
                "devices": len(compare().devices),
                "first_s": first,
                "again_s": statistics.median(again),
            }
        )
    found[0]["catalogue"] = len(list_hardware())
    return found


def speed_table(result: Result) -> str:
    """The speed figures in Markdown."""
    columns = {
        "model": "{model}",
        "operators": "{operators}",
        "devices": "{devices}",
        "first call": "{first_s:.2f} s",
        "further calls": "{again_s:.2f} s",
    }
    return markdown.table(result["rows"], columns)


# Table of the page: the result file that it shows, and what makes it.
TABLES: dict[str, tuple[str, Callable[[Result], str]]] = {
    "speed": ("compare_speed", speed_table),
    "parallel": ("multi_gpu", multi_gpu.table),
    "ranking": ("device_ranking", device_ranking.table),
}


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


@command(
    Option("--only", help="only the blocks whose name holds this"),
    Option("--no-screenshot", action="store_true"),
    Option("--no-speed", action="store_true"),
)
def main(options: Options) -> None:
    """Reruns the page's commands and writes down what they print, then the tables."""
    # before the page is written, which git would count as a change
    made = provenance("python -m experiments.plan_docs")
    with shared_traces(), tempfile.TemporaryDirectory() as folder:
        for name, words in shown_commands().items():
            if options.only and options.only not in name:
                continue
            print(f"$ prenet {shlex.join(words)}", flush=True)
            place = [str(Path(folder) / word) if word.endswith(".html") else word for word in words]
            text = printed(place)
            print(text, flush=True)
            fill_output(name, text, PAGE)
        reports = sorted(Path(folder).glob("*.html"))
        if reports and not options.no_screenshot:
            screenshot(reports[0])
    if not options.no_speed and not options.only:
        write_result("compare_speed", {**made, "rows": speed()})
    for name, (result_name, table) in TABLES.items():
        result = read_result(result_name)
        if result:
            put(name, PAGE, table(result))
        else:
            print(f"table '{name}' stays as it is: there is no result '{result_name}'")


if __name__ == "__main__":
    main()
