"""The graph as plain data, and how its sizes follow the batch size."""
