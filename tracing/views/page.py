"""A graph as one web page: modules open and close, costs show under the pointer."""

from __future__ import annotations

from html import escape

from tracing.costs.node import NodeCost
from tracing.costs.storages import saved_by_node
from tracing.costs.totals import node_costs, recomputed_flops
from tracing.graph.data import GraphData
from tracing.graph.specs import OpNode
from tracing.views.modules import ModuleRow, module_rows
from tracing.views.units import by, metric

_STYLE = """
body{font:14px/1.5 system-ui,sans-serif;margin:2rem;color:#222;background:#fff}
details{margin-left:1.1rem;border-left:1px solid #ddd;padding-left:.5rem}
summary,.op{display:grid;grid-template-columns:minmax(14rem,1fr) repeat(5,8rem);cursor:default}
summary{cursor:pointer;font-weight:600}summary:hover,.op:hover{background:#eef4ff}
.op{margin-left:1.1rem;color:#444}span{text-align:right;padding:0 .4rem}
span:first-child{text-align:left;overflow-wrap:anywhere}
.bar{background:linear-gradient(to left,#9cc2ff var(--share),transparent var(--share))}
.head{font-weight:600;border-bottom:2px solid #999;position:sticky;top:0;background:#fff}
button{margin:.3rem .3rem .8rem 0}
@media(prefers-color-scheme:dark){body,.head{background:#181a1b;color:#ddd}.op{color:#bbb}
summary:hover,.op:hover{background:#26344d}.bar{background:linear-gradient(to left,
#2f5597 var(--share),transparent var(--share))}}
"""
_SCRIPT = """
const all=open=>document.querySelectorAll('details').forEach(d=>{d.open=open});
document.getElementById('open').onclick=()=>all(true);
document.getElementById('close').onclick=()=>all(false);
let zoom=1;
const scale=by=>{zoom=Math.min(3,Math.max(.3,zoom*by));document.body.style.zoom=zoom};
document.getElementById('larger').onclick=()=>scale(1.25);
document.getElementById('smaller').onclick=()=>scale(.8);
document.getElementById('find').oninput=e=>{const text=e.target.value.toLowerCase();
document.querySelectorAll('.op').forEach(o=>{
o.hidden=!!text&&!o.title.toLowerCase().includes(text);if(!text||o.hidden)return;
for(let d=o.closest('details');d;d=d.parentElement.closest('details'))d.open=true})};
"""
_HEAD = ("module or operator", "parameters", "forward", "backward", "saved", "share")


def _cells(values: tuple[str, ...], share: float) -> str:
    *plain, last = values
    bar = f'<span class="bar" style="--share:{share:.1%}">{last}</span>'
    return "".join(f"<span>{escape(value)}</span>" for value in plain) + bar


def _summary(row: ModuleRow, name: str) -> str:
    title = escape(f"{row.module or 'model'}: {row.calls} calls", quote=True)
    return f'<summary title="{title}">{_cells((name, *row.figures()), row.share)}</summary>'


def _operator(node: OpNode, cost: NodeCost, saved: int, total: int) -> str:
    shapes = ", ".join(by(spec.shape) for spec in node.input_specs)
    out = by(node.output.shape)
    title = (
        f"{node.target} in {node.module or 'model'}\n({shapes}) to {out} {node.output.dtype}\n"
        f"reads {metric(cost.forward_read_bytes, 'B')}, writes "
        f"{metric(cost.forward_write_bytes, 'B')}\nfrom {[i for i in node.inputs if i >= 0]}"
    )
    share = cost.forward_flops + cost.backward_flops
    values = (
        f"{node.index} {node.op} {out}",
        ", ".join(name.rpartition(".")[2] for name in node.params),
        metric(cost.forward_flops, "FLOP"),
        metric(cost.backward_flops, "FLOP"),
        metric(saved, "B"),
        f"{share / total:.1%}",
    )
    return (
        f'<div class="op" title="{escape(title, quote=True)}">{_cells(values, share / total)}</div>'
    )


def _facts(graph: GraphData) -> str:
    costs = node_costs(graph)
    forward = sum(cost.forward_flops for cost in costs)
    backward = sum(cost.backward_flops for cost in costs) + recomputed_flops(graph, costs)
    return (
        f"batch {graph.batch_size}, {graph.mode}, {len(graph.nodes)} calls, "
        f"{metric(forward, 'FLOP')} forward, "
        f"{metric(backward, 'FLOP')} backward, {graph.total_params:,} parameters"
    )


def summary_html(graph: GraphData, depth: int = 1) -> str:
    """A small table by module, for notebooks."""
    lines = []
    for row in module_rows(graph, depth):
        values = (row.module or "all", *row.figures())
        cells = "".join(f"<td>{escape(value)}</td>" for value in values)
        lines.append(f"<tr>{cells}</tr>")
    head = "".join(f"<th>{name}</th>" for name in ("module", *_HEAD[1:]))
    table = f"<table><tr>{head}</tr>{''.join(lines)}</table>"
    return f"<b>{escape(graph.name)}</b><br>{escape(_facts(graph))}{table}"


def to_html(graph: GraphData) -> str:
    """One self-contained page; nothing is loaded from elsewhere."""
    rows = module_rows(graph, None)
    costs = node_costs(graph)
    total = max(sum(cost.forward_flops + cost.backward_flops for cost in costs), 1)
    calls: dict[str, list[str]] = {}
    for node, cost, saved in zip(graph.nodes, costs, saved_by_node(graph), strict=True):
        calls.setdefault(node.module, []).append(_operator(node, cost, saved, total))
    body, depth = [], -1
    for row in rows:
        body.append("</details>" * (depth - row.depth + 1))
        depth = row.depth
        opened = " open" if row.depth < 2 else ""
        name = row.module.rpartition(".")[2] or graph.name
        body.append(f"<details{opened}>{_summary(row, name)}")
        body += calls.get(row.module, [])
    body.append("</details>" * (depth + 1))
    head = "".join(f"<span>{name}</span>" for name in _HEAD)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(graph.name)}</title>'
        f"<style>{_STYLE}</style><h1>{escape(graph.name)}</h1><p>{escape(_facts(graph))}</p>"
        '<button id="open">open all</button><button id="close">close all</button>'
        '<button id="larger">zoom in</button><button id="smaller">zoom out</button>'
        '<input id="find" placeholder="find an operator" aria-label="find an operator">'
        f'<div class="op head">{head}</div>{"".join(body)}<script>{_SCRIPT}</script></html>\n'
    )
