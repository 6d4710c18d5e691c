"""From a command line to objects: composes Hydra's configuration, checks every key, builds what `_target_` names."""
