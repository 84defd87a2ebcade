# shellcheck shell=bash disable=SC2034  # local/test/molecule.sh reads it
# What a scenario is, unless its own scenario.sh says something else.
# Names of its hosts; none: those of `make up`.
hosts=''
# `packages` is the image of `make up`, for a scenario that shows nothing of bare hosts.
image=${HOST_IMAGE:-bare}
# Whether hosts are secured, whatever `make up` was told; the tests of most scenarios are plain clients.
export SECURITY=none
# How many tests `verify` must run at least.
min_tests=1
# Whether numbers of earlier runs in this checkout stay, to be replaced one by one by its tests.
keeps_numbers=''
# Plays for which it has no hosts on purpose.
empty_plays=(
  "Serve schemas"
  "Mirror another datacenter's topics"
  "Count what passes each tier"
  "Install Spark on the hosts of its standalone cluster"
  "Run the standalone cluster of Spark, its master first"
  "Run the workers of Kafka Connect"
  "Make the connectors what the inventory says"
  "Install Spark where queries run"
  "Run queries over topics"
)
# Runs before the hosts are created.
before() { :; }
# Options of `local.hosts plan`.
plan_options=()
# Runs once the hosts are planned and before they are created.
planned() { :; }
# What Molecule runs within.
within=()
