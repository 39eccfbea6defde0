"""Searches settings of the network with Optuna, in one process or in many that may die."""
