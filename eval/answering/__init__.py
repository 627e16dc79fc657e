"""From examples to stored answers and the table printed after a run."""
