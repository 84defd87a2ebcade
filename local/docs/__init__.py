"""Generators of the pages that tell what the code already says."""
