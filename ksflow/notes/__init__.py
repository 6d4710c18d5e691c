"""What is known: documents and what they say, notes on disk, probes, what lessons and predictions rest on."""
