"""Errors of a measurement that a user can mend."""

from prenet_gnn.errors import PreNetError


class MeasureError(PreNetError):
    """A model, a device or a setting cannot be measured here."""


class DeviceLostError(MeasureError):
    """The device answers no more in this process; a new one may find it well."""
