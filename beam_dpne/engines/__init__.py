"""Running a pipeline on an engine: watched, and cancelled with its launcher."""
