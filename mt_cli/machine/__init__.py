"""What the program runs on: devices, processes, terminals, files. Nothing here knows models or
data.
"""
