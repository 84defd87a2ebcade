# shellcheck shell=bash disable=SC2034  # local/test/molecule.sh reads it
hosts='log1.example.internal log2.example.internal log3.example.internal'
image=packages
min_tests=6
empty_plays+=(
  "Load topics into the lake"
  "Hand clients that start to a broker that answers"
)
plan_options=(--user deploy)
. molecule/shared/handed_over.sh
handed_over inventories/small
