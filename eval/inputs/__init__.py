"""What a model is asked: records of a task, their prompts, and the token ids these become."""
