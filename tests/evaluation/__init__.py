"""Tests of `beam_dpne.evaluation`."""
