"""The numbers of answers: LongBench's metrics, kept Rouge scores, and how sure a mean or a difference is."""
