"""Studies; nothing imports this package."""
