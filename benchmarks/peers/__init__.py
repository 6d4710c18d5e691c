"""Parts of `benchmarks/peers.py`: the stub model, the stub evaluator, the three tools, and what measures them."""
