"""Pictures of runs and of participation."""
