"""Small helpers that every room uses: files, settings, units."""
