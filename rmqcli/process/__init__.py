"""What clients do when their process ends or forks, and what gRPC needs for that."""
