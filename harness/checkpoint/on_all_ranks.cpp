#include "harness/checkpoint/on_all_ranks.h"

#include <exception>

#include "harness/comm/rank_name.h"
#include "kernels/base/failure.h"

namespace bertha {

void on_all_ranks(World& world, const std::function<void()>& work) {
  Failure failure{.code = ExitCode::kSuccess, .what = ""};
  try {
    work();
  } catch (...) {
    failure = failure_of(std::current_exception());
  }
  const int code = static_cast<int>(failure.code);
  const int worst = world.agree_max(code);
  if (worst == 0) return;
  const int failed_rank = world.agree_max(code == worst ? world.rank() : -1);
  throw RankError(static_cast<ExitCode>(worst),
                  world.broadcast(with_rank_name(world, failure.what), failed_rank));
}

void on_first_rank(World& world, const std::function<void()>& work) {
  on_all_ranks(world, [&] {
    if (world.rank() == 0) work();
  });
}

std::string text_of_first_rank(World& world, const std::function<std::string()>& find) {
  std::string text;
  on_first_rank(world, [&] { text = find(); });
  return world.broadcast(text, 0);
}

}  // namespace bertha
