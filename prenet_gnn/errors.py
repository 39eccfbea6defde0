"""Errors a user can cause; the command line prints each as one line."""


class PreNetError(Exception):
    """Base of all errors that a user can cause and mend."""


class ConfigError(PreNetError):
    """A setting is unknown or has a value that is not allowed."""


class UnknownHardwareError(PreNetError):
    """A device name is neither in the catalogue nor a readable device file."""


class CheckpointError(PreNetError):
    """Weights or their description are missing, damaged or of another schema."""


class DataError(PreNetError):
    """A data file is missing or holds rows that cannot be used."""
