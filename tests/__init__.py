"""Tests; a package, so that they can share their peers and builders by name."""
