"""What every room may use: input checks, objects by name, keyed randomness, files written whole, metric names."""
