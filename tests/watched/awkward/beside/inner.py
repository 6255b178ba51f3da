"""Imported by name from the folder of the script."""

WHOSE = "mine"
