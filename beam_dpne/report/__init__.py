"""Reports of a release for its readers, made from its ledger and rows alone."""
