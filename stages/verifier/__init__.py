"""Verifiers: what is read of a kernel before it is compiled. `writer=verified` asks one."""
