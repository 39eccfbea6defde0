"""What is asked: how a graph is run.

`workload` has the `Workload` and the values that its fields take, `optimizers` what each optimizer
moves, launches and keeps, `frameworks` what differs between versions of PyTorch.
"""
