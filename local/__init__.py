"""What a checkout does on this machine: hosts, tests, the demo, generated pages. Run from its root."""
