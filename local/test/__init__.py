"""How `make test` and its parts run, and what their results say."""
