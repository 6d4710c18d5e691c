"""From a model to its kernels, and back into the model.

In: a user's file with a model and its inputs. Out: which regions take its time (`profile`), and those as problem
folders (`problem`). The commands may import it. It judges nothing itself.
"""
