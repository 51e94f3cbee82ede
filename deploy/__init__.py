"""Starting engines: scripts for people and tests, run as `python3 -m deploy.ENGINE` from here up."""
