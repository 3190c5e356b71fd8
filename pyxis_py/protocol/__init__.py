"""How the doors talk to the keeper: requests, answers, news."""
