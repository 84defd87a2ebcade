"""Topics of one cluster in another, partition for partition, in order, nothing left out."""
