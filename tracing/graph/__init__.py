"""The graph as plain data, what a gradient reaches in it, and how it follows the batch size."""
