"""A file of a user's own repository, judged by the repository's own commands."""
