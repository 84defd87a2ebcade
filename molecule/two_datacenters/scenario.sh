# shellcheck shell=bash disable=SC2034  # local/test/molecule.sh reads it
hosts='live1 live2 live3 offline1 offline2 spark1 spark2'
image=packages
min_tests=12
