"""What benchmarks share: brokers and clients to measure, rounds by turns, results and their pages."""
