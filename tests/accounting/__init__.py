"""Tests of `beam_dpne.release`."""
