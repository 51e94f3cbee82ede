"""Files and directories, local and remote: access, locks, markers, run-key files."""
