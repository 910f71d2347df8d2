// A process-wide pool of persistent workers. Results must never depend on how many there are.
#pragma once

#include <type_traits>

namespace longhaul {

/// A non-owning reference to a callable void(int worker): no allocation, unlike std::function.
class WorkerRef {
 public:
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, WorkerRef>)
  WorkerRef(F&& body)  // NOLINT(google-explicit-constructor): a reference type
      : object_(const_cast<void*>(static_cast<const void*>(&body))),
        call_([](void* object, int worker) { (*static_cast<std::remove_reference_t<F>*>(object))(worker); }) {}
  void operator()(int worker) const { call_(object_, worker); }

 private:
  void* object_;
  void (*call_)(void*, int);
};

/// Number of threads when the caller gives 0: LONGHAUL_THREADS, or the cores this process may run on.
int default_threads();

/// Starts the workers that run_on_workers(threads) uses, so that it cannot fail afterwards: a caller who promises an
/// error before anything is written starts them first. Throws System where they cannot be started. Locks only where
/// some are missing.
void start_workers(int threads);

/// Runs body(0) … body(threads-1), each once, on the caller and threads-1 pool workers; returns when all are done. The
/// exception of the lowest index is rethrown. When the pool is busy with another caller's job, the caller runs all of
/// them itself, so concurrent calls never wait for each other.
void run_on_workers(int threads, WorkerRef body);

}  // namespace longhaul
