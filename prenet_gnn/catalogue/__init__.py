"""The device catalogue: its data files, what an entry holds, and how entries are read."""
