"""The machine: devices, processes, signals and sizes. Nothing here knows models, data or text."""
