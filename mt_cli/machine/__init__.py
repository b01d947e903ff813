"""What the program runs on: devices, processes, terminals, files; no models, no data."""
