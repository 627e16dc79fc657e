"""Tables from stored answers: which answers make one, its cells, rows and notes, and what the paper prints there."""
