"""Which device, batch size and precision: compares devices and plans whole training runs.

`comparison` ranks devices for one model. A plan starts from a `request` with its `limits`, lists
the `space` of what may be tried (`devices`, `checkpointing`, several devices by `parallel`), goes
through it (`search`, `samplers`) and gives each try as an `option` of the whole run.
"""

from prenet_gnn.planning.comparison import Comparison, DeviceRow, compare
from prenet_gnn.planning.limits import PlanError
from prenet_gnn.planning.option import Option
from prenet_gnn.planning.request import PlanRequest
from prenet_gnn.planning.search import Plan, plan

__all__ = [
    "Comparison",
    "DeviceRow",
    "Option",
    "Plan",
    "PlanError",
    "PlanRequest",
    "compare",
    "plan",
]
