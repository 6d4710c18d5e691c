"""A kernel of the user's own with a reference beside it."""
