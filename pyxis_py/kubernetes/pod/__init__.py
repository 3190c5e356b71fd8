"""What every pod of a job is given, whichever object it belongs to."""
