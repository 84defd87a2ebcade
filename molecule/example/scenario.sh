# shellcheck shell=bash disable=SC2034,SC2154  # local/test/molecule.sh reads it, and has VENV and STATE
zone=example.internal
hosts="bastion.$zone"
for host in zk-a1 zk-a2 zk-a3 log-a1 log-a2 log-a3 log-b1 log-b2 log-b3 spark-b1; do hosts+=" $host.$zone"; done
image=packages
min_tests=11
empty_plays=(
  "Install Spark on the hosts of its standalone cluster"
  "Run the standalone cluster of Spark, its master first"
  "Run the workers of Kafka Connect"
  "Make the connectors what the inventory says"
  "Install Spark where queries run"
  "Run queries over topics"
)
plan_options=(--user deploy --data-network --bastion "bastion.$zone")
for host in log-b1 log-b2 log-b3 spark-b1; do plan_options+=(--behind "$host.$zone"); done

. molecule/shared/handed_over.sh
handed_over inventories/example
