# shellcheck shell=bash disable=SC2034  # local/test/molecule.sh reads it
min_tests=112
