"""Documentation, and what generates its pages."""
