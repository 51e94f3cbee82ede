"""The version of beam_dpne, read by the package build and written into ledgers."""

__version__ = "0.1.0"
