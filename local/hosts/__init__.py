"""Machines to deploy onto: containers, virtual machines, and the image that both begin with."""
