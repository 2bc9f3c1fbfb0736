#include "harness/comm/thread_stack.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "kernels/base/tests/matchers.h"

namespace bertha {
namespace {

std::atomic<bool> is_over = false;

}  // namespace

// Exported, as its name is to be seen.
[[gnu::noinline]] void spin_until_over() {
  while (!is_over) {
  }
}

namespace {

TEST(ThreadStack, AThreadThatSpinsIsSeenInItsFunction) {
  std::atomic<ThreadStack*> made = nullptr;
  std::thread spinning([&] {
    ThreadStack stack;
    made = &stack;
    spin_until_over();
  });
  while (made == nullptr) std::this_thread::yield();
  std::string text;
  for (int i = 0; i < 100 && text.find("spin_until_over") == std::string::npos; ++i) {
    text = made.load()->text();
  }
  is_over = true;
  spinning.join();
  EXPECT_THAT(text, HasSubstr("bertha::spin_until_over()+0x"));
}

TEST(ThreadStack, AProcessThatIsStoppedIsKnownToTheKernel) {
  const pid_t process = fork();
  if (process == 0) {
    for (;;) pause();
  }
  kill(process, SIGSTOP);
  waitpid(process, nullptr, WUNTRACED);
  EXPECT_THAT(process_text(process), StartsWith("state T (stopped by a signal)"));
  kill(process, SIGKILL);
  waitpid(process, nullptr, 0);
  EXPECT_EQ(process_text(process), "the kernel has no information about it");
}

}  // namespace
}  // namespace bertha
