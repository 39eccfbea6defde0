"""Measured layers as tables with PreNeT's features, and whole models as sums over them."""
