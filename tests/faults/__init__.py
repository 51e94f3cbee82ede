"""Injected faults: bundles that fail or are repeated, killed processes, damaged inputs."""
