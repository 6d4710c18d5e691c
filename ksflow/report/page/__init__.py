"""A page on one or more runs that opens from disk without a network: what was tried, what won, and the evidence.

`facts` reads a lineage as JSON values, `details` makes the details of a trial, `render` writes the page, whose own
script draws it, `markdown` fills the templates of the summary and, for `pull_request`, of the text of a pull request,
`picture` has a browser draw the first screen. Nothing here decides or ranks: every figure is the lineage's. Texts of
models are data in the page, never markup or script.
"""

from ksflow.report.page.facts import RunFacts, run_facts
from ksflow.report.page.markdown import as_markdown
from ksflow.report.page.picture import as_png
from ksflow.report.page.pull_request import as_pull_request
from ksflow.report.page.render import as_html, split_details

__all__ = ["RunFacts", "as_html", "as_markdown", "as_png", "as_pull_request", "run_facts", "split_details"]
