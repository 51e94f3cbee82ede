"""Spark on this machine: in one Java machine, or a standalone cluster; and Beam's job server."""
