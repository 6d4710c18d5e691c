"""GPU MODE's reference-kernels."""
