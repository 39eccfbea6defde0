"""Graphs for people and other programs: tables, pages, JSON, networkx."""
