"""The HTTP that images older than this project speak."""
