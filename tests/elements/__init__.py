"""Tests of `beam_dpne.elements`."""
