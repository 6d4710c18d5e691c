"""Evaluators: a kernel in, its verdict out; each variant is one file, what does the work is in rooms."""
