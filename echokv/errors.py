"""The exception for a caller's mistake."""


class UsageError(ValueError):
    """A setting, model or prompt that cannot work; the message says what, which limit, and the remedy."""
