"""The paper's numbers, and the runs that reproduce its tables."""
