"""Faults made on purpose: kills, broken disks, damaged files; and proof that every promise survives them."""
