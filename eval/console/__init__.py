"""What a person at the terminal is told: mistakes in one line, signals, progress."""
