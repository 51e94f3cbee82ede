"""Tests of `beam_dpne.storage`."""
