"""Peak memory of an iteration."""
