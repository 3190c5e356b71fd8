"""Programs made out of images: `write` makes one, `header` and `runner` are what it begins with."""
