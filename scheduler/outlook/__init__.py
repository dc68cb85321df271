"""What people are told of a job's future. Found when somebody asks; no decision rests on it."""
