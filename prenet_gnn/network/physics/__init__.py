"""Seconds of every call by physics: arithmetic, traffic, launches, and registered effects."""
