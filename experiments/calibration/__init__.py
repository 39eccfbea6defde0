"""Measurements beside predictions, and how calibration brings them together."""
