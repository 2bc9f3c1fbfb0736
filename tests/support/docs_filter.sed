#!/usr/bin/env -S sed -E -f
# Doxygen reads headers through this: labels of a contract become a list, the comment behind a
# member its documentation; <word> is no tag and \r no command.
s#^( *)/// ([A-Z][a-z]+)  +#\1/// - **\2:** #
s#^( +[A-Za-z_][^/]*[;,]) +// #\1 ///< #
/\/\/\//s#\\([a-z])#\\\\\1#g
/\/\/\//s#<([a-z_. ]+)>#\\<\1\\>#g
