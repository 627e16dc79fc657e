"""From settings to what will run."""
