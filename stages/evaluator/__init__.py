"""Evaluators: a kernel in, its verdict out; each variant is one file, `ksflow.evaluation` does the work."""
