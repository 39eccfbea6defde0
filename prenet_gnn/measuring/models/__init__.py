"""Models that the zoo's libraries lack, built from a spec: single layers and small networks.

`spec` reads specs, `layers` and `nets` register the families that can be named.
"""

from prenet_gnn.measuring.models import layers, nets
from prenet_gnn.measuring.models.spec import (
    FAMILIES,
    Shape,
    Value,
    build_own,
    format_spec,
    is_layer,
    is_own,
    parse_spec,
)

__all__ = [
    "FAMILIES",
    "Shape",
    "Value",
    "build_own",
    "format_spec",
    "is_layer",
    "is_own",
    "layers",
    "nets",
    "parse_spec",
]
