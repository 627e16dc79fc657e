"""Stored answers and stored selections, as files."""
