#include <sys/stat.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "harness/cli/processor.h"
#include "harness/cli/run_command.h"
#include "kernels/base/error.h"
#include "kernels/cpu/cpu_backend.h"

int main(int argc, char** argv) {
  if (const char* const missing = bertha::missing_feature(bertha::kCompiledFeatures)) {
    std::fprintf(stderr,
                 "bertha: error: this program was compiled to use %s, which this processor lacks; "
                 "build it on such a node, or anywhere with -D BERTHA_NATIVE=OFF\n",
                 missing);
    return static_cast<int>(bertha::ExitCode::kEnvironment);
  }
  // Bertha's own threads call OpenBLAS, which must not start any when it is loaded.
  setenv("OPENBLAS_NUM_THREADS", "1", /*overwrite=*/1);
  umask(umask(0) | S_IWOTH);  // no world-writable files, whatever the caller's umask
  // With SIGXFSZ ignored, a write beyond the limit of file sizes fails with its reason, as on a
  // full disk, instead of ending the process.
  std::signal(SIGXFSZ, SIG_IGN);
  return bertha::run_bertha(std::vector<std::string>(argv + 1, argv + argc));
}
