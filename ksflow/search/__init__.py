"""What designers without a model know: moves over tunables, what was gained where, the choice among plans."""
