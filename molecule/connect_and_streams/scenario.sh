# shellcheck shell=bash disable=SC2034  # local/test/molecule.sh reads it
hosts='live1 live2 live3'
image=packages
min_tests=18
export SECURITY=sasl_ssl
empty_plays=(
  "Hand clients that start to a broker that answers"
  "Ship the journals"
  "Serve schemas"
  "Mirror another datacenter's topics"
  "Count what passes each tier"
  "Measure the clusters as their clients see them"
  "Show the clusters in a browser"
  "Install Spark on the hosts of its standalone cluster"
  "Run the standalone cluster of Spark, its master first"
  "Load topics into the lake"
)
for group in ship load_balancer monitoring registry console probe; do plan_options+=(--without "pylog_$group"); done
before() { make --no-print-directory jars; }
