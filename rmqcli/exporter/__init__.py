"""What `rmq exporter` serves to Prometheus: lag, dead letters, brokers as metrics."""
