# shellcheck shell=bash disable=SC2034  # local/test/molecule.sh reads it
hosts='live1 live2 live3'
image=packages
min_tests=3
empty_plays+=("Load topics into the lake")
