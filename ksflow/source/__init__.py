"""The text of a kernel: tunables, launch lines, fingerprints, the contract with the caller, edits."""
