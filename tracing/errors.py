"""Errors of tracing that a user can cause."""


class TraceError(Exception):
    """A model cannot be turned into a graph of operators."""


class UnsupportedOpError(TraceError):
    """An operator has no cost formula and the caller asked for an error."""
