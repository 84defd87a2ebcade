"""The broker: one screen that starts and stops everything, and one handler per API."""
