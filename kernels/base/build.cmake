# What kernels/rows, built alone, and the whole of Bertha configure alike: options, compilers, CUDA,
# and the functions that make libraries.

# A guest of another project (add_subdirectory, FetchContent) builds no tests or benchmarks, installs
# nothing and does not set the build type.
set(bertha_is_guest ON)
if(PROJECT_IS_TOP_LEVEL)
  set(bertha_is_guest OFF)
endif()
option(BERTHA_INSTALL "Install the libraries and headers of the kernels" ${PROJECT_IS_TOP_LEVEL})

set(bertha_oldest_GNU 11)
set(bertha_oldest_Clang 14)
set(oldest ${bertha_oldest_${CMAKE_CXX_COMPILER_ID}})
if(oldest AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS oldest)
  message(FATAL_ERROR "${CMAKE_CXX_COMPILER} is ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}, "
    "want GCC ${bertha_oldest_GNU}, Clang ${bertha_oldest_Clang} or a newer one. Install it and add "
    "-D CMAKE_CXX_COMPILER=PROGRAM in an empty build folder.")
endif()

include(GNUInstallDirs)
set(BERTHA_CUDA AUTO CACHE STRING "CUDA sources: AUTO (when nvcc 12.5 or newer is found), ON, OFF")
set_property(CACHE BERTHA_CUDA PROPERTY STRINGS AUTO ON OFF)
option(BERTHA_WERROR "Treat warnings as errors, as .ci/run does" "$ENV{BERTHA_WERROR}")
# On but where the caller says that the libraries are for other processors, too.
option(BERTHA_NATIVE "Tune the CPU backend for this machine's processor" ${bertha_native_default})
get_filename_component(bertha_root ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)
get_filename_component(bertha_root ${bertha_root} DIRECTORY)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE AND NOT bertha_is_guest)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()
set(BERTHA_OPTIMIZATION -O2 CACHE STRING "Optimization of RelWithDebInfo builds")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "${BERTHA_OPTIMIZATION} -g1")
set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "-O3 -lineinfo")

find_program(BERTHA_CCACHE ccache)
set(bertha_ccache_on OFF)
set(bertha_ccache_why "not found")
if(BERTHA_CCACHE)
  # Where it cannot write its cache, as with an unwritable HOME, ccache ends every compilation.
  string(RANDOM ccache_trial)  # which no cache has yet
  file(WRITE ${CMAKE_BINARY_DIR}/CMakeFiles/ccache_trial.cpp "int trial_${ccache_trial};\n")
  execute_process(COMMAND ${BERTHA_CCACHE} ${CMAKE_CXX_COMPILER} -c ccache_trial.cpp -o ccache_trial.o
    WORKING_DIRECTORY ${CMAKE_BINARY_DIR}/CMakeFiles RESULT_VARIABLE ccache_trial
    OUTPUT_QUIET ERROR_VARIABLE bertha_ccache_why ERROR_STRIP_TRAILING_WHITESPACE)
  if(ccache_trial EQUAL 0)
    set(bertha_ccache_on ON)
    set(bertha_ccache_why "${BERTHA_CCACHE}")
    set(CMAKE_CXX_COMPILER_LAUNCHER ${BERTHA_CCACHE})
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${BERTHA_CCACHE})
  endif()
endif()

# --- CUDA: on or off, and why ---------------------------------------------------------------------
set(bertha_cuda_on OFF)
if(BERTHA_CUDA STREQUAL "OFF")
  set(bertha_cuda_why "BERTHA_CUDA=OFF")
else()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    # The kernels of sm_90a are compiled for it alone, all others for this list. PTX of compute_80
    # serves all GPUs from 8.0 on, translated by the driver; 80-real, 86-real, 89-real spare that.
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80-virtual 90a-real)
    endif()
    enable_language(CUDA)
    if(CMAKE_CUDA_ARCHITECTURES MATCHES "(^|;)[1-7][0-9](-|;|$)")
      message(FATAL_ERROR "CMAKE_CUDA_ARCHITECTURES is ${CMAKE_CUDA_ARCHITECTURES}, want 80 or newer. Set it to "
        "\"80-virtual;90a-real\" before CUDA is enabled, or set BERTHA_CUDA to OFF.")
    endif()
    if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know it of nvcc
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.5)  # cudaGetDriverEntryPointByVersion
      set(bertha_cuda_why "nvcc ${CMAKE_CUDA_COMPILER_VERSION} is older than 12.5")
    else()
      find_package(CUDAToolkit REQUIRED)
      set(bertha_cuda_on ON)
      set(bertha_cuda_why "nvcc ${CMAKE_CUDA_COMPILER_VERSION}, for ${CMAKE_CUDA_ARCHITECTURES}")
    endif()
  else()
    set(bertha_cuda_why "no nvcc was found")
  endif()
endif()
if(BERTHA_CUDA STREQUAL "ON" AND NOT bertha_cuda_on)
  message(FATAL_ERROR "BERTHA_CUDA=ON, but ${bertha_cuda_why}. "
    "Put nvcc 12.5 or newer on PATH, set CUDACXX, or leave it out.")
endif()

find_package(Threads REQUIRED)

# bertha_public(bertha_NAME): other projects link bertha::NAME, installed or not.
function(bertha_public target)
  string(REGEX REPLACE "^bertha_" "" name ${target})
  add_library(bertha::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
endfunction()

# Every target of ours: include paths from the repository root, warnings.
add_library(bertha_common INTERFACE)
bertha_public(bertha_common)
target_include_directories(bertha_common INTERFACE
  $<BUILD_INTERFACE:${bertha_root}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/bertha>)
target_compile_features(bertha_common INTERFACE cxx_std_20)
set(bertha_cxx_warnings -Wall -Wextra -Wpedantic -Wshadow)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")  # libstdc++'s own, which its pragmas hide from GCC only
  list(APPEND bertha_cxx_warnings -Wno-deprecated-declarations)
endif()
set(bertha_cuda_warnings -Xcompiler=-Wall,-Wextra)
if(BERTHA_WERROR)
  list(APPEND bertha_cxx_warnings -Werror)
  set(bertha_cuda_warnings -Xcompiler=-Wall,-Wextra,-Werror)
  # There ptxas ignores launch bounds of more blocks than an SM holds, and warns.
  if(NOT CMAKE_CUDA_ARCHITECTURES MATCHES "86|89|12[01]")
    list(APPEND bertha_cuda_warnings -Werror=all-warnings)
  endif()
endif()
set(bertha_warnings
  "$<$<COMPILE_LANGUAGE:CXX>:${bertha_cxx_warnings}>"
  "$<$<COMPILE_LANGUAGE:CUDA>:${bertha_cuda_warnings}>")

# bertha_library(NAME SOURCES ... LIBS ...): one static library.
function(bertha_library name)
  cmake_parse_arguments(LIBRARY "" "" "SOURCES;LIBS" ${ARGN})
  add_library(${name} STATIC ${LIBRARY_SOURCES})
  bertha_public(${name})
  target_compile_options(${name} PRIVATE ${bertha_warnings})
  target_link_libraries(${name} PUBLIC bertha_common ${LIBRARY_LIBS})
endfunction()

# As bertha_library, of CUDA sources.
function(bertha_cuda_library name)
  bertha_library(${name} ${ARGN})
  # Also for those who include the templates of rows/cuda/.
  target_compile_options(${name} PUBLIC $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>)
  # Private: what has no CUDA in it is compiled alike with and without. dlopen: cuBLASLt; NVTX loads a
  # profiler.
  target_link_libraries(${name} PRIVATE CUDA::cudart_static ${CMAKE_DL_LIBS}
    PUBLIC $<INSTALL_INTERFACE:CUDA::cudart_static>)
endfunction()

# As bertha_library, of the CPU backend: loops over rows are written for the vectorizer; `omp simd` only
# names the reductions that it may reorder, so Clang need not warn of loops that it does not vectorize.
function(bertha_cpu_library name)
  bertha_library(${name} ${ARGN})
  target_compile_options(${name} PRIVATE
    -O3 -fopenmp-simd -fno-math-errno -fno-trapping-math
    $<$<CXX_COMPILER_ID:Clang>:-Wno-pass-failed>
    $<$<BOOL:${BERTHA_NATIVE}>:-march=native>)
endfunction()
