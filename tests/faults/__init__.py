"""Injected faults: failing DoFns, lost bundles, killed processes, full disks, truncated inputs."""
