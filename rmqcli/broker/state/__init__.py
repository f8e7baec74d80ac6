"""What a broker keeps: topics, groups, clients, offsets, locks, held pulls."""
