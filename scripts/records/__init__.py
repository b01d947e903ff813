"""Records of finished trainings, kept in docs/records, and the tables of docs/results.md made of them."""
