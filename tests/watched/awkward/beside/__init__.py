"""A package beside the scripts, found through sys.path[0]."""
