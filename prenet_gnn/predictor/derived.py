"""What is derived from a graph and kept while both the graph and the predictor live."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, TypeVar

from prenet_gnn.encoding.encode import Encoded, encode
from prenet_gnn.encoding.template import Template, build_template, template_key
from prenet_gnn.errors import PreNetError
from prenet_gnn.predictor.questions import check_graph

if TYPE_CHECKING:
    from tracing import OpGraph

_Value = TypeVar("_Value")


class DerivedGraphs:
    """Templates, arrays and other things by graph; safe to share between threads."""

    def __init__(self) -> None:
        """Starts empty."""
        self._lock = threading.RLock()
        # graphs by identity: their equality looks at every call
        self._known: dict[int, tuple[weakref.ref[OpGraph], dict[Hashable, Any]]] = {}

    def keep(self, graph: OpGraph, key: Hashable, make: Callable[[], _Value]) -> _Value:
        """What was made for a graph under a key, made now where it was not."""
        with self._lock:
            place = id(graph)
            if place not in self._known or self._known[place][0]() is not graph:
                forget = weakref.ref(graph, lambda _: self._known.pop(place, None))
                self._known[place] = (forget, {})
            values = self._known[place][1]
            if key not in values:
                values[key] = make()
            found: _Value = values[key]
            return found

    def template(self, graph: OpGraph, precision: str, single_attention: bool) -> Template:
        """The distinct calls of a graph under a precision."""
        key = ("template", template_key(precision), single_attention)
        return self.keep(
            graph, key, lambda: build_template(graph, precision, single_attention=single_attention)
        )

    def encoded(self, graph: OpGraph, precision: str, single_attention: bool = True) -> Encoded:
        """The graph's arrays under a precision.

        Args:
            graph: What runs.
            precision: Of `Workload`.
            single_attention: Attention outside of fused kernels computes in float32, as it does in
                the present PyTorch.

        Raises:
            PreNetError: The graph holds nothing to predict.
        """
        check_graph(graph)

        def make() -> Encoded:
            template = self.template(graph, precision, single_attention)
            if not len(template.nodes):
                raise PreNetError(
                    "the graph only makes views of its inputs: there is nothing to predict."
                )
            return encode(template, graph.batch_size, precision)

        return self.keep(graph, ("encoded", precision, single_attention), make)

    def __getstate__(self) -> dict[str, Any]:
        """A copy, in another process say, starts empty."""
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Starts empty."""
        DerivedGraphs.__init__(self)
