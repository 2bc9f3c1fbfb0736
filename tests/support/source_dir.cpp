#include "tests/support/source_dir.h"

namespace bertha {

const char* const kSourceDir = BERTHA_SOURCE_DIR;

}  // namespace bertha
