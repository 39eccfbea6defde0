"""Graphs and workloads as numbers for the network."""
