"""The HTTP that old images speak (images from before this project). New features do not go here."""
