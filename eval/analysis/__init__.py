"""Measurements of the mechanism behind query-driven eviction: EchoKV's Tables 1, 2 and 6 and what goes past them."""
