"""Whether the process behind a number still runs, and whether it is the one that had it before."""

from __future__ import annotations

import os
from pathlib import Path


def start_ticks(pid: int) -> str:
    """When a process started, in the kernel's ticks; empty if it is gone, or without `/proc`."""
    try:
        fields = Path("/proc", str(pid), "stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return ""
    # a killed process that nobody has collected yet still has its number
    return "" if fields[0] in "ZX" else fields[19]


def is_running(pid: int) -> bool:
    """Whether a process of this machine runs."""
    if Path("/proc/self").exists():
        return bool(start_ticks(pid))
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
