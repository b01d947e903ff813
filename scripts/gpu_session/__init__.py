"""`scripts/gpu`: what is run on a GPU when there is one."""
