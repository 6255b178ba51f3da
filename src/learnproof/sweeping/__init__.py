"""Many trainings, in search of better settings."""
