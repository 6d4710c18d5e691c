"""How a kernel is compiled, held, checked, timed and profiled, here and on other machines."""
