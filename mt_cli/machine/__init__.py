"""Access to the machine: devices, processes, the terminal, files. No models, no data."""
