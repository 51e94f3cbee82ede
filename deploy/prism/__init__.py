"""Beam's Prism runner: one program, built from its Go module; nothing to start."""
