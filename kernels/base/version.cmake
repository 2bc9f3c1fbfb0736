# The version of the program, the kernels and the Python packages. The test repository_files_test compares
# other files that state it. A release has the suffix "".
set(bertha_version 1.1.0)
set(bertha_version_suffix -dev)
