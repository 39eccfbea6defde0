"""From a module and its inputs to a graph: export, record, patches."""
