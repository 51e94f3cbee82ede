"""Tests of `beam_dpne.set_union`."""
