"""KernelBench's modules."""
