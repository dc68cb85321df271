"""A daemon's recorded decisions, decided again; and what another choice would have changed."""
