"""Which device, batch size and precision: compares devices and plans whole training runs."""

from prenet_gnn.planning.comparison import Comparison, DeviceRow, compare
from prenet_gnn.planning.search import Plan, PlanError, PlanRequest, plan
from prenet_gnn.planning.settings import Option

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
