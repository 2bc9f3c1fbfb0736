#!/usr/bin/env -S sed -E -f
# Doxygen reads sources through this. Labels of a contract become a list and the comment after a member
# its documentation; <word> is not a tag and \r not a command. The comment at the beginning of a .cu, or
# of the namespace in a .cuh, documents the file; the rest of a .cu is left out.
1{
  /^\/\//{
    h
    b comment
  }
}
/^namespace bertha \{$/{
  n
  n
  /^\/\/ /b comment
}
b labels
:comment
N
/\n$/!b comment
s#^//#///#Mg
s#$#/// @file#
:labels
s#^( *)/// ([A-Z][a-z]+( by)?)  +#\1///   - **\2:** #Mg
s#^( +[A-Za-z_][^/]*[;,]) +// #\1 ///< #
/\/\/\//s#\\([a-z])#\\\\\1#g
/\/\/\//s#<([a-z_. ]+)>#\\<\1\\>#g
x
/./{
  x
  q
}
x
