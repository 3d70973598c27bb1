"""A run is a folder: its config, its metrics as they come, a checkpoint of the whole state; and sweeps over runs."""
