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
  // Bertha's own threads call OpenBLAS; when it is loaded, it starts none then.
  setenv("OPENBLAS_NUM_THREADS", "1", /*overwrite=*/1);
  umask(umask(0) | S_IWOTH);  // whatever the caller's: no file that everybody can write
  // Beyond a limit of file sizes a write then fails with its reason, as on a full disk, instead of
  // ending the process.
  std::signal(SIGXFSZ, SIG_IGN);
  return bertha::run_bertha(std::vector<std::string>(argv + 1, argv + argc));
}
