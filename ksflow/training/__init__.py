"""What is made of a lineage: compiled prompts and training data."""
