#include "core/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/environment.h"
#include "longhaul/error.h"

#if defined(__SANITIZE_THREAD__)
#define LONGHAUL_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LONGHAUL_TSAN 1
#endif
#endif

namespace longhaul {
namespace {

using namespace std::chrono_literals;

TEST(ThreadPool, RunsEveryIndexOnce) {
  for (const int threads : {1, 2, 3, 8, 33}) {
    for (int repeat = 0; repeat < 200; ++repeat) {
      std::array<int, 64> runs{};  // not atomic: each index belongs to one thread, and the return orders them all
      run_on_workers(threads, [&](int worker) { ++runs[static_cast<size_t>(worker)]; });
      for (int i = 0; i < 64; ++i) {
        ASSERT_EQ(runs[static_cast<size_t>(i)], i < threads ? 1 : 0);
      }
    }
  }
}

TEST(ThreadPool, UsesOtherThreads) {
  // Two bodies that wait for each other can only end on two threads.
  std::atomic<int> arrived{0};
  run_on_workers(2, [&](int) {
    ++arrived;
    for (const auto end = std::chrono::steady_clock::now() + 60s;
         arrived < 2 && std::chrono::steady_clock::now() < end;) {
      std::this_thread::yield();
    }
    EXPECT_EQ(arrived, 2);
  });
}

TEST(ThreadPool, WorksAgainAfterItsWorkersFellAsleep) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::this_thread::sleep_for(2ms);
    std::atomic<int> sum{0};
    run_on_workers(4, [&](int worker) { sum += worker; });
    ASSERT_EQ(sum, 6);
  }
}

TEST(ThreadPool, TheCallerWaitsForASlowWorker) {
  std::atomic<bool> done{false};
  std::atomic<bool> started{false};
  run_on_workers(2, [&](int worker) {
    if (worker == 1) {
      started = true;
      std::this_thread::sleep_for(20ms);  // longer than the spinning: the caller sleeps and must be woken
      done = true;
    } else {
      while (!started) {
        std::this_thread::yield();
      }
    }
  });
  EXPECT_TRUE(done);
}

TEST(ThreadPool, RethrowsTheExceptionOfTheLowestIndexAfterAllHaveRun) {
  for (int repeat = 0; repeat < 100; ++repeat) {
    std::atomic<int> runs{0};
    try {
      run_on_workers(6, [&](int worker) {
        ++runs;
        if (worker >= 2) {
          throw std::runtime_error(std::to_string(worker));
        }
      });
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "2");
    }
    EXPECT_EQ(runs, 6);
  }
  std::atomic<int> runs{0};
  run_on_workers(6, [&](int) { ++runs; });
  EXPECT_EQ(runs, 6) << "the pool works after exceptions";
}

TEST(ThreadPool, NestedCallsRunOnTheThreadThatMakesThem) {
  std::atomic<int> inner{0};
  run_on_workers(4, [&](int) {
    const std::thread::id self = std::this_thread::get_id();
    run_on_workers(4, [&](int) {
      EXPECT_EQ(std::this_thread::get_id(), self);
      ++inner;
    });
  });
  EXPECT_EQ(inner, 16);
}

TEST(ThreadPool, ManyCallersAtOnceNeverWaitForEachOther) {
  constexpr int kCallers = 8;
  constexpr int kRepeats = 300;
  std::atomic<long> total{0};
  std::atomic<int> caught{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&, caller] {
      for (int repeat = 0; repeat < kRepeats; ++repeat) {
        std::array<int, 5> mine{};
        try {
          run_on_workers(5, [&](int worker) {
            mine[static_cast<size_t>(worker)] = 1;
            if (caller == 0 && worker == 3) {
              throw std::runtime_error("three");
            }
          });
        } catch (const std::runtime_error&) {
          ++caught;
        }
        for (const int one : mine) {
          total += one;
        }
      }
    });
  }
  for (std::thread& caller : callers) {
    caller.join();
  }
  EXPECT_EQ(total, kCallers * kRepeats * 5);
  EXPECT_EQ(caught, kRepeats);
}

TEST(ThreadPool, ABusyPoolDoesNotHoldUpAnotherCaller) {
  std::atomic<bool> release{false};
  std::atomic<bool> running{false};
  std::thread holder([&] {
    run_on_workers(2, [&](int) {
      running = true;
      while (!release) {
        std::this_thread::yield();
      }
    });
  });
  while (!running) {
    std::this_thread::yield();
  }
  int sum = 0;  // not atomic: everything runs here
  run_on_workers(5, [&](int worker) { sum += worker; });
  EXPECT_EQ(sum, 10);
  release = true;
  holder.join();
}

TEST(ThreadPool, RefusesThreadCountsOutOfRange) {
  const auto expect_refused = [](int threads, void (*call)(int)) {
    try {
      call(threads);
      ADD_FAILURE() << threads;
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(std::string(error.what()), "threads is " + std::to_string(threads) + ", but allowed are 1 to 1024");
    }
  };
  for (const int threads : {0, -1, kMaxThreads + 1}) {
    expect_refused(threads, [](int n) { run_on_workers(n, [](int) {}); });
    expect_refused(threads, [](int n) { start_workers(n); });
  }
}

TEST(ThreadPool, WorkersCanBeStartedWhileAnotherCallerUsesThePool) {
  std::atomic<bool> release{false};
  std::atomic<bool> running{false};
  std::thread holder([&] {
    run_on_workers(2, [&](int) {
      running = true;
      while (!release) {
        std::this_thread::yield();
      }
    });
  });
  while (!running) {
    std::this_thread::yield();
  }
  std::vector<std::thread> starters;
  for (int i = 0; i < 4; ++i) {
    starters.emplace_back([] { start_workers(40); });
  }
  for (std::thread& starter : starters) {
    starter.join();
  }
  release = true;
  holder.join();
  std::atomic<int> arrived{0};
  run_on_workers(40, [&](int) {
    ++arrived;
    for (const auto end = std::chrono::steady_clock::now() + 60s;
         arrived < 40 && std::chrono::steady_clock::now() < end;) {
      std::this_thread::yield();
    }
    EXPECT_EQ(arrived, 40);
  });
}

/// Runs `body` in a forked child and returns its wait status.
template <class Body>
int status_of_child(Body&& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // a child that hangs fails
    body();
    _exit(1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

/// Why a forked child cannot start threads here, or nullptr.
const char* no_threads_after_fork() {
#ifdef LONGHAUL_TSAN
  return "ThreadSanitizer refuses new threads in a forked child";
#else
  return std::getenv("LONGHAUL_TEST_EMULATED") != nullptr ? "qemu-user fails on new threads in a forked child"
                                                          : nullptr;
#endif
}

TEST(ThreadPool, AForkedChildStartsItsOwnWorkers) {
  if (const char* reason = no_threads_after_fork()) {
    GTEST_SKIP() << reason;
  }
  run_on_workers(3, [](int) {});
  const int status = status_of_child([] {
    std::atomic<int> arrived{0};
    run_on_workers(3, [&](int) {
      ++arrived;
      while (arrived < 3) {  // ends only with real threads
        std::this_thread::yield();
      }
    });
    _exit(42);
  });
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 42);
}

TEST(ThreadPool, ExitInsideABodyEndsTheProcess) {
  if (const char* reason = no_threads_after_fork()) {
    GTEST_SKIP() << reason;
  }
  const int status = status_of_child([] {
    run_on_workers(3, [](int worker) {
      if (worker == 2) {
        std::exit(43);
      }
    });
  });
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 43);
}

/// A call from a destructor that runs after the pool has closed still works. The process's exit status tells.
struct LateCaller {
  ~LateCaller() {
    int runs = 0;
    run_on_workers(4, [&](int) { ++runs; });
    if (runs != 4) {
      _exit(1);
    }
  }
};
const LateCaller late_caller;  // constructed before the pool, so destroyed after it

}  // namespace
}  // namespace longhaul
