// Sleeping on an atomic. std::atomic::wait of libstdc++ calls sched_yield before it sleeps, which on a shared machine
// hands a whole time slice to somebody else: a worker then joined a job 9 ms late instead of 0.15.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace longhaul {

static_assert(sizeof(std::atomic<int>) == sizeof(int) && std::atomic<int>::is_always_lock_free);

/// An int that threads spin on, then sleep on until it differs from what they saw.
class SleepableInt {
 public:
  int load() const { return value_.load(std::memory_order_acquire); }
  /// Without a wake-up, before anybody waits.
  void reset(int value) { value_.store(value, std::memory_order_relaxed); }

  // Sequentially consistent, as sleepers_: either the sleeper sees the new value, or the writer sees the sleeper.
  void store_and_wake(int value) {
    value_.store(value);
    wake();
  }
  /// Returns the value before. Does not wake.
  int decrement() { return value_.fetch_sub(1); }
  void wake() {
    if (sleepers_.load() > 0) {
      syscall(SYS_futex, &value_, FUTEX_WAKE_PRIVATE, 1 << 30, nullptr, nullptr, 0);
    }
  }

  /// Sleeps while the value is `seen`; may return early.
  void sleep_while(int seen) {
    sleepers_.fetch_add(1);
    if (value_.load() == seen) {
      syscall(SYS_futex, &value_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
    }
    sleepers_.fetch_sub(1);
  }

 private:
  std::atomic<int> value_{0};
  std::atomic<int> sleepers_{0};
};

}  // namespace longhaul
