"""A Flink cluster on this machine: JobManager, TaskManagers, Beam's job server, Beam's workers."""
