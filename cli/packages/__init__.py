"""Code packages on the user's side: which files, their manifest, what git says of them, and how
they reach the daemon. Imported only by commands that were given a package."""
