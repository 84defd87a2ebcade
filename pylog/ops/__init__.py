"""Day-2 work on hosts through Fabric."""
