"""A look at a whole cluster, for scheduler-doctor. Changes nothing but canary pods."""
