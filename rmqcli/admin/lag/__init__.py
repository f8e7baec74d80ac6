"""How far each group is behind, and why: gathered, assembled and explained."""
