"""Schemas by id: Confluent's REST API over a compacted topic."""
