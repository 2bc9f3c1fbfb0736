#include "harness/checkpoint/on_all_ranks.h"

#include <new>
#include <string>

#include "kernels/base/error.h"

namespace bertha {

void on_all_ranks(World& world, const std::function<void()>& work) {
  std::string message;
  int code = 0;
  try {
    work();
  } catch (const Error& error) {
    message = error.what();
    code = static_cast<int>(error.code);
  } catch (const std::bad_alloc&) {
    message = "out of host memory; use fewer ranks per node, a smaller batch or a smaller model";
    code = static_cast<int>(ExitCode::kMemory);
  } catch (const std::exception& error) {
    message = error.what();
    code = static_cast<int>(ExitCode::kInternal);
  }
  const int worst = world.agree_max(code);
  if (worst == 0) return;
  const int failed_rank = world.agree_max(code == worst ? world.rank() : -1);
  throw Error(static_cast<ExitCode>(worst), world.broadcast(message, failed_rank));
}

}  // namespace bertha
