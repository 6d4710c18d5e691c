"""flashinfer-bench's definitions and solutions."""
