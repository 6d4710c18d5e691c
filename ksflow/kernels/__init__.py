"""What is optimised and for what: problems, kernel sources, languages and targets."""
