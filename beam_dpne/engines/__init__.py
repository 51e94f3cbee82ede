"""Running pipelines on engines."""
