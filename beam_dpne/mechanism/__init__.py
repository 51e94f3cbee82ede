"""The mechanism: randomness, noise, calibration and rules, without Beam and without Arrow tables."""
