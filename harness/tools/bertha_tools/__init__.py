"""Tools for people that read the files of Bertha's training runs; training does not need them."""
