"""Random lives of a daemon under faults, and the checkers that know the truth."""
