"""TritonBench's operators."""
