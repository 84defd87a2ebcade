"""A whole cluster in one process, from one seed; see docs/design/simulation.md."""
