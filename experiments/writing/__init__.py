"""Writers of the tables in README and in docs/."""
