"""Tests of `beam_dpne.mechanism`."""
