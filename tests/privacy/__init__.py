"""The privacy of the mechanism: exact sensitivity, the laws of what is released, and attacks."""
