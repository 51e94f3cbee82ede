"""Manifests of a Flink session cluster for Beam on Kubernetes; see README.md."""
