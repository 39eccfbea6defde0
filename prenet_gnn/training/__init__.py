"""Fits the network to measured rows."""
