"""What a model sees: one ordered list of sections (`brief`), and the records as their text.

In: records, and how many tokens there are. Out: text, the same for the same values, so that answers can be cached.
`brief` fills a list of sections to a budget; `render` writes tasks, kernels and analyses, `views` populations,
`findings` notes, `failures` attempts to repair, `hardware` what tools say of a kernel.

The stages that ask models, `lm` and the tools of assistants import it. It asks nobody and knows no model.
"""
