"""Which objects a person should see, and the list that they fill in."""
