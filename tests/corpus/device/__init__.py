"""Kernels for a GPU: cheats, dangers, and honest ones that look suspicious. `benchmarks/device.py` judges them."""
