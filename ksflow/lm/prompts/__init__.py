"""Prompt text: an ordered list of sections (`brief`), and records as text.

In: records, and a number of tokens. Out: text, the same for the same values, so that answers can be cached.
`brief` fills a list of sections to a budget; `render` writes tasks, kernels and analyses, `times` tables of times,
`views` populations, `findings` notes, `failures` attempts to repair, `hardware` reports of tools on a kernel.
The stages that call models, `lm` and the tools of assistants import it. It calls no model.
"""
