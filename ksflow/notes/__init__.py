"""Notes: on disk, from documents and probes, resting on trials; and how predictions held.

In: Markdown notes, documents (PDF, HTML, Markdown, text, code), results of probes, trials. Out: `Note` records with
sources that can be looked up, passages that a source can name, and calibrations of predictions. The lineage, the stages
with language models, the commands and reports import it. It calls no model, runs no probe, and uses no network.
"""
