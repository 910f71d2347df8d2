#include "core/thread_pool.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "core/environment.h"
#include "core/futex.h"
#include "longhaul/error.h"

namespace longhaul {
namespace {

// Spinning before sleeping: a pause takes 20 to 140 cycles, so this is some ten microseconds, about what a wake-up
// costs.
constexpr int kSpins = 1000;

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

/// Keeps the exception of the lowest index, so that the same failure gives the same message whatever the timing.
class FirstError {
 public:
  void capture(int index) noexcept {
    const std::lock_guard lock(mutex_);
    if (!error_ || index < index_) {
      error_ = std::current_exception();
      index_ = index;
    }
  }
  void rethrow() {
    if (error_) {
      std::rethrow_exception(error_);
    }
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
  int index_ = 0;
};

struct Job {
  WorkerRef body;
  FirstError errors;

  void run(int index) noexcept {
    try {
      body(index);
    } catch (...) {
      errors.capture(index);
    }
  }
};

/// The indices of a job are claimed one by one, so a worker that wakes late costs nothing but its help.
///
/// state_ packs (epoch, threads, next index): a claim is one compare-and-swap that fails if the job has changed, and
/// job_ is read only while holding a claimed index, during which the job cannot end.
class Pool {
 public:
  Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// Starts workers until there are so many; none once the pool is closed.
  void start(int workers);
  /// False where another job is running, or the pool is closed.
  bool try_run(int threads, Job& job);
  /// Ends the workers for good. Does nothing while a job runs: a body called exit(), or a detached thread outlives
  /// main().
  void close();

 private:
  static constexpr uint64_t next_of(uint64_t state) { return state & 0xffff; }
  static constexpr uint64_t threads_of(uint64_t state) { return (state >> 16) & 0xffff; }

  void work(int number);
  bool run_one();

  std::atomic<bool> busy_{false};
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> state_{0};
  SleepableInt epoch_;    // idle workers sleep on it
  SleepableInt pending_;  // indices not finished yet; the caller sleeps on it
  Job* job_ = nullptr;
  std::atomic<int> started_{0};  // workers_.size(), to be read without the lock
  std::mutex growing_;           // guards workers_
  std::vector<std::thread> workers_;
};

void Pool::close() {
  if (busy_.exchange(true, std::memory_order_acquire)) {
    return;
  }
  stop_.store(true, std::memory_order_release);
  epoch_.store_and_wake(epoch_.load() + 1);
  const std::lock_guard lock(growing_);
  for (std::thread& worker : workers_) {
    worker.join();
  }
  workers_.clear();
}

bool Pool::try_run(int threads, Job& job) {
  if (busy_.exchange(true, std::memory_order_acquire)) {
    return false;
  }
  const std::unique_ptr<std::atomic<bool>, void (*)(std::atomic<bool>*)> release(
      &busy_, [](std::atomic<bool>* busy) { busy->store(false, std::memory_order_release); });
  start(threads - 1);
  job_ = &job;
  pending_.reset(threads);
  const auto epoch = static_cast<uint32_t>(epoch_.load()) + 1;
  state_.store((static_cast<uint64_t>(epoch) << 32) | (static_cast<uint64_t>(threads) << 16),
               std::memory_order_release);
  epoch_.store_and_wake(static_cast<int>(epoch));
  while (run_one()) {
  }
  int left = pending_.load();
  for (int spin = 0; left != 0 && spin < kSpins; ++spin) {
    pause_cpu();
    left = pending_.load();
  }
  while (left != 0) {
    pending_.sleep_while(left);
    left = pending_.load();
  }
  return true;
}

/// Claims an index of the current job and runs it; false when none is left.
bool Pool::run_one() {
  uint64_t state = state_.load(std::memory_order_acquire);
  while (next_of(state) < threads_of(state)) {
    if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
      job_->run(static_cast<int>(next_of(state)));
      if (pending_.decrement() == 1) {
        pending_.wake();
      }
      return true;
    }
  }
  return false;
}

void Pool::work(int number) {
  pthread_setname_np(pthread_self(), fmt::format("longhaul-{}", number).c_str());
  int seen = 0;
  while (!stop_.load(std::memory_order_acquire)) {
    for (int spin = 0; spin < kSpins && epoch_.load() == seen; ++spin) {
      pause_cpu();
    }
    epoch_.sleep_while(seen);
    seen = epoch_.load();
    while (run_one()) {
    }
  }
}

void Pool::start(int workers) {
  if (started_.load(std::memory_order_acquire) >= workers) {
    return;
  }
  const std::lock_guard lock(growing_);
  if (stop_.load(std::memory_order_acquire)) {
    return;
  }
  const SignalsBlocked blocked;  // new threads inherit it: signals belong to the program's own threads
  try {
    workers_.reserve(static_cast<size_t>(workers));
    while (static_cast<int>(workers_.size()) < workers) {
      workers_.emplace_back([this, number = static_cast<int>(workers_.size()) + 1] { work(number); });
      started_.store(static_cast<int>(workers_.size()), std::memory_order_release);
    }
  } catch (const std::system_error& error) {
    throw System(fmt::format("threads is {}, but worker {} cannot be started ({})", workers + 1, workers_.size() + 1,
                             error.what()));
  }
}

// Never freed and trivially destructible, so that a call from another static destructor still finds it (closed).
constinit std::atomic<Pool*> g_pool{nullptr};

Pool& process_pool() {
  struct Closer {
    Closer() {
      g_pool = new Pool;
      // A forked child has none of the workers: it leaves the parent's pool as it is and starts over.
      pthread_atfork(nullptr, nullptr, [] { g_pool = new Pool; });
    }
    ~Closer() { g_pool.load()->close(); }
  };
  static const Closer closer;
  return *g_pool.load(std::memory_order_acquire);
}

void check_threads(int threads) {
  if (threads < 1 || threads > kMaxThreads) {
    throw InvalidArgument(fmt::format("threads is {}, but allowed are 1 to {}", threads, kMaxThreads));
  }
}

int count_allowed_cpus() {
  for (int bits = 1024; bits <= (1 << 20); bits *= 2) {
    const size_t bytes = CPU_ALLOC_SIZE(bits);
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(bits), [](cpu_set_t* p) { CPU_FREE(p); });
    if (set != nullptr && sched_getaffinity(0, bytes, set.get()) == 0) {
      return CPU_COUNT_S(bytes, set.get());
    }
  }
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

int default_threads() {
  static const int threads = [] {
    const std::optional<int> wanted = threads_setting();
    return wanted ? *wanted : std::clamp(count_allowed_cpus(), 1, kMaxThreads);
  }();
  return threads;
}

void start_workers(int threads) {
  check_threads(threads);
  if (threads > 1) {
    process_pool().start(threads - 1);
  }
}

void run_on_workers(int threads, WorkerRef body) {
  check_threads(threads);
  Job job{body, {}};
  if (threads == 1 || !process_pool().try_run(threads, job)) {
    for (int index = 0; index < threads; ++index) {
      job.run(index);
    }
  }
  job.errors.rethrow();
}

}  // namespace longhaul
