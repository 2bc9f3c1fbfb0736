# Makes the golden files of the data generator again and compares them with the committed ones.
file(REMOVE_RECURSE ${SCRATCH})
file(MAKE_DIRECTORY ${SCRATCH})
execute_process(COMMAND ${PYTHON} ${SCRIPTS}/make_pretraining_golden.py ${SCRATCH}
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${PYTHON} ${SCRIPTS}/make_python_random_golden.py
  OUTPUT_FILE ${SCRATCH}/python_random.txt COMMAND_ERROR_IS_FATAL ANY)
file(GLOB made RELATIVE ${SCRATCH} ${SCRATCH}/*)
file(GLOB committed RELATIVE ${SCRIPTS}/prepare ${SCRIPTS}/prepare/*)
if(NOT made STREQUAL committed)
  message(FATAL_ERROR "made: ${made}; committed: ${committed}")
endif()
foreach(name ${made})
  file(SHA256 ${SCRATCH}/${name} made_hash)
  file(SHA256 ${SCRIPTS}/prepare/${name} committed_hash)
  if(NOT made_hash STREQUAL committed_hash)
    message(FATAL_ERROR "${name} differs from the committed file")
  endif()
endforeach()
