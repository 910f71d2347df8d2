// Runs `verify` up to the first failure: 0 all kernels agree with the oracle, 1 a difference was found, 2 it could not
// run.
#include <cstdio>
#include <exception>

#include "attention/testing/verify.h"

int main() {
  using namespace longhaul::conformance;
  try {
    VerifyOptions options;
    options.stop_at_first_failure = true;
    VerifyReport report = run_verify(options);
    options.isa = longhaul::Isa::amx_emulated;
    if (report.failures.empty()) report = run_verify(options);
    for (const VerifyFailure& f : report.failures)
      std::printf("%s case %d: %s\n  %s\n", f.isa.c_str(), f.index, f.what.c_str(), f.spec.c_str());
    std::printf("%d comparisons in %.1f s\n", report.cases, report.seconds);
    return report.failures.empty() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
