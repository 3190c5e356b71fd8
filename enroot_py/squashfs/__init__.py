"""Write and read squashfs images."""
