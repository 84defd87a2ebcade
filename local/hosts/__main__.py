"""`python3 -m local.hosts`: the local hosts."""

from local.hosts.hosts import be_program, main

be_program(main)
