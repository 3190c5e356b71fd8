"""Jobs on a cluster: created, listed, followed, held and cancelled, through the user's access."""
