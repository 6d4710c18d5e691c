"""A run, or several, as one page that opens from disk without a network: what was tried, what won, what to believe.

`facts` reads a lineage into plain data, `details` what a click on a trial shows, `render` writes the page, whose own
script draws it, `markdown` writes a summary for a pull request, `picture` has a browser draw the first screen. Nothing
here decides or ranks anything: every figure is the lineage's. Texts that models wrote are data in the page, never
markup or script.
"""

from ksflow.report.page.facts import RunFacts, run_facts
from ksflow.report.page.markdown import as_markdown
from ksflow.report.page.picture import as_png
from ksflow.report.page.render import apart, as_html

__all__ = ["RunFacts", "apart", "as_html", "as_markdown", "as_png", "run_facts"]
