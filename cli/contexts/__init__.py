"""Named sets of defaults of the commands: what a user's file and a project's file may contain, how
they are read and edited, and how they become defaults. No network."""
