"""Ways to count tokens."""
