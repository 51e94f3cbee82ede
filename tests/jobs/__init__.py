"""Tests of `beam_dpne.jobs`."""
