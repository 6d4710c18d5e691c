"""The verbs that learn: `digest`, `probe`, `knowledge`; whether a source holds; what a run starts with from another."""
