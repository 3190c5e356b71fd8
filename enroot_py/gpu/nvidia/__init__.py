"""NVIDIA: discovery of the driver, and the plan of its injection."""
