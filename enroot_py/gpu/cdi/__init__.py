"""Container Device Interface: read, check, resolve, apply and write specifications."""
