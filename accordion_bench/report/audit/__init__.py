"""The audit of the paper's own columns; trains nothing."""
