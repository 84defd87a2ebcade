# shellcheck shell=bash disable=SC2034  # local/test/molecule.sh reads it
hosts='live1 live2 live3'
min_tests=30
empty_plays+=("Load topics into the lake")
export SECURITY=sasl_ssl
