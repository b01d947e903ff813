"""Figures and curves."""
