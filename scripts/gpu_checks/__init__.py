"""The parts of scripts/gpu_check.py. They need torch and transformers alone, and the library beside them."""
