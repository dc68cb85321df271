"""What trainings log: taken in once, packed, thinned out with age, and read. Knows no HTTP."""
