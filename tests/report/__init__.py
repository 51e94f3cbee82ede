"""Tests of `beam_dpne.report`."""
