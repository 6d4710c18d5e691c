"""From a person's code to a problem, and from the winner back into that code."""
