"""What is asked: how a graph is run."""
