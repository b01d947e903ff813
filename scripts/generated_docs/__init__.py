"""Pages of docs/, or parts of them, that are made from the code."""
