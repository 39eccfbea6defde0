"""A folder with a good model, models that fail, and files that are no use."""

from __future__ import annotations

from pathlib import Path

NET = """
import torch

def net(batch_size=2):
    return torch.nn.Sequential(torch.nn.Linear(8, 4)), (torch.empty(batch_size, 8, device="meta"),)

def no_tuple(batch_size=2):
    return 3

def empty(batch_size=2):
    return torch.nn.Identity(), (torch.empty(batch_size, 8, device="meta"),)

def wrong_shape(batch_size=2):
    return torch.nn.Linear(9, 4), (torch.empty(batch_size, 8, device="meta"),)

def stops(batch_size=2):
    raise SystemExit("from the user's own code")

class Exits(torch.nn.Module):
    def forward(self, x):
        raise SystemExit(7)

class Nothing(torch.nn.Module):
    def forward(self, x):
        return None

class Endless(torch.nn.Module):
    def forward(self, x):
        return self.forward(x)

def exits(batch_size=2):
    return Exits(), (torch.empty(batch_size, 8),)

def nothing(batch_size=2):
    return Nothing(), (torch.empty(batch_size, 8),)

def endless(batch_size=2):
    return Endless(), (torch.empty(batch_size, 8),)

def no_sample(batch_size=2):
    return torch.nn.Linear(8, 4), (torch.empty(0, 8),)

def needs_more(batch_size, what):
    return torch.nn.Linear(8, 4), (torch.empty(batch_size, 8),)

def wrong_name(batch_size=2):
    return torch.nn.Linear(8, 4), (), {"inputs": torch.empty(batch_size, 8)}

def four_things(batch_size=2):
    return torch.nn.Linear(8, 4), (torch.empty(batch_size, 8),), {}, 5

def the_class(batch_size=2):
    return torch.nn.Linear, (torch.empty(batch_size, 8),)

def a_number(batch_size=2):
    return torch.nn.Linear(8, 4), (3,)

def no_inputs(batch_size=2):
    return torch.nn.Linear(8, 4)

def many_lines(batch_size=2):
    raise ValueError("one\\ntwo\\n\\nthree")

def says_nothing(batch_size=2):
    raise ValueError

def no_memory(batch_size=2):
    raise MemoryError

def generator(batch_size=2):
    yield torch.nn.Linear(8, 4)

not_callable = 3
"""
DEVICE = (
    '"multiprocessors": 80, "memory_bytes": 34359738368, "memory_bytes_per_s": 1.2e12, '
    '"peak_fp32_flops_per_s": 2e13'
)
# Device files that are no use, and what the message says about each.
DEVICES = {
    "ctrl.json": (f'{{"name": "\\u001b[31mred", {DEVICE}}}', "one line of plain text"),
    "line.json": (f'{{"name": "a\\nb", {DEVICE}}}', "one line of plain text"),
    "twice.json": (f'{{"name": "a", "name": "b", {DEVICE}}}', "'name' is there twice"),
    "twice.toml": ('name = "a"\nname = "b"\n', "cannot be read"),
    "typo.json": (f'{{"name": "a", "memmory": 1, {DEVICE}}}', "Did you mean 'memory_type'"),
    "nan.json": (f'{{"name": "a", "tdp_w": NaN, {DEVICE}}}', "finite"),
    "negative.json": (f'{{"name": "a", "tdp_w": -1, {DEVICE}}}', "is the unit right?"),
    "text.json": (f'{{"name": "a", "tdp_w": "70", {DEVICE}}}', "must be a number"),
    "flag.json": (f'{{"name": "a", "tdp_w": true, {DEVICE}}}', "must be a number"),
    "huge.json": (f'{{"name": "a", "tdp_w": 1e300, {DEVICE}}}', "is the unit right?"),
    "nameless.json": (f'{{"name": " ", {DEVICE}}}', "field 'name' is empty"),
    "kind.json": (f'{{"name": "a", "kind": "toaster", {DEVICE}}}', "Allowed: gpu, cpu"),
}
SYNTAX = "def net(:\n"
BOOM = "raise RuntimeError('boom while importing')\n"


def fill(folder: Path) -> Path:
    """Writes them all."""
    for name, text in (("net.py", NET), ("syntax.py", SYNTAX), ("boom.py", BOOM)):
        (folder / name).write_text(text)
    (folder / "empty.json").write_text("")
    (folder / "list.json").write_text("[1, 2]\n")
    (folder / "jobs.csv").write_text("model,batch_size,hardware\nnet.py:net,2,Tesla T4\n")
    for name, (text, _) in DEVICES.items():
        (folder / name).write_text(text)
    (folder / "latin.toml").write_bytes(b"# caf\xe9\n")
    (folder / "folder.py").mkdir()
    (folder / "weights").mkdir()
    return folder
