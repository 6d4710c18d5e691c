"""What is known: notes on disk, the documents and probes they come from, what lessons rest on, how predictions held.

In: Markdown notes, documents (PDF, HTML, Markdown, text, code), answers of probes, trials. Out: `Note` records with
sources that can be looked up, passages that a source can name, and how far predictions held. The lineage, the language
model's stages, the commands and reports import it. It asks no model, runs no probe, and goes nowhere on the network.
"""
