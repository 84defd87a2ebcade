"""What was produced, and what of it arrived where: counts from every tier, compared by topic, producer and window."""
