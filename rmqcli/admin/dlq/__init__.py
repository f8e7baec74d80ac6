"""The dead letters of groups: listing, reading and redriving them."""
