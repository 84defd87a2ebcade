# shellcheck shell=bash disable=SC2034  # local/test/molecule.sh reads it
hosts='live1 live2 live3'
image=packages
min_tests=20
empty_plays+=('Load topics into the lake')
# The host that the purged ones are compared with never had a package installed.
before() { HOST_IMAGE=bare local/hosts/image.sh; }
