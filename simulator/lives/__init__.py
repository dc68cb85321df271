"""Random lives of a daemon under faults, and checkers that know the truth."""
