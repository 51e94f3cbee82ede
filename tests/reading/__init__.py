"""Tests of `beam_dpne.reading`."""
