// The HDF5 library forgets small blocks when it refuses a damaged file (all of them allocated and
// lost inside of the library); the leak sanitizer must not count those against our tests.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libhdf5"; }
