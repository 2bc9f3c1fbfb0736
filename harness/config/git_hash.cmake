# cmake -DSOURCE=folder -DOUTPUT=git_hash.cpp -P git_hash.cmake: names the commit that is built now.
# Runs at every build; the file changes, and is compiled again, only when the commit does.
execute_process(COMMAND git describe --always --dirty=+ --abbrev=7 --exclude=*
  WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE hash OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT hash)
  set(hash unknown)
endif()
set(text "#include \"harness/config/build_info.h\"\n
namespace bertha {\nconst char* git_hash() { return \"${hash}\"; }\n}  // namespace bertha\n")
set(before "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT before STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
