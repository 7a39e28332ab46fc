"""What a party does to a message before it sends it: clip, noise, compress."""
