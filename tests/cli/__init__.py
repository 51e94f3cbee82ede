"""Tests of `beam_dpne.cli`."""
