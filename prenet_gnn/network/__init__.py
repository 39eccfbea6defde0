"""The network: physics first, a graph network that corrects it."""
