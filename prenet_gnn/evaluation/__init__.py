"""How far predictions are from measured times, beside baselines."""
