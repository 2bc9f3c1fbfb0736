#include "kernels/base/error.h"

namespace bertha {

void throw_error(ExitCode code, const std::string& what) { throw Error(code, what); }

void throw_failed_check(const char* condition, const std::string& what, const char* file,
                        int line) {
  throw Error(ExitCode::kInternal,
              concat(file, ':', line, ' ', condition, " failed", what.empty() ? "" : ": ", what));
}

}  // namespace bertha
