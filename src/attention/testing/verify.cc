#include "attention/testing/verify.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <utility>

#include "attention/testing/compare.h"
#include "attention/testing/cuda_case.h"
#include "longhaul/error.h"

namespace longhaul::conformance {
namespace {

std::string run_and_compare(JudgedCase& judged, Isa isa) {
  const ScopedIsa scoped(isa);
  try {
    judged.test.run();
    return compare(judged.test, judged.oracle);
  } catch (const std::exception& error) {
    return fmt::format("threw: {}", error.what());
  }
}

std::string run_and_compare_on_cuda(JudgedCase& judged) {
  try {
    std::string what = run_on_cuda(judged.test);
    return what.empty() ? compare(judged.test, judged.oracle) : what;
  } catch (const std::exception& error) {
    return fmt::format("threw: {}", error.what());
  }
}

// Runs one case on every instruction set, or on the CUDA device, and adds what it finds to the report.
void verify_case(const CaseSpec& spec, const std::vector<Isa>& isas, uint64_t seed, int index, VerifyReport& report) {
  JudgedCase judged = judged_case(spec);
  report.redraws += judged.redraws;
  for (size_t h = 0; h < judged.oracle.counters.size(); h += 4) {
    if (judged.test.spec.lambda == Lambdas::none) continue;
    report.visible += judged.oracle.counters[h];
    report.skipped += judged.oracle.counters[h + 1];
  }
  const auto add = [&](std::string_view where, std::string what) {
    ++report.cases;
    if (!what.empty())
      report.failures.push_back({std::string(where), seed, index, judged.test.spec.describe(), std::move(what)});
  };
  if (spec.device == Device::cuda) return add("cuda", run_and_compare_on_cuda(judged));
  for (const Isa isa : isas) add(isa_name(isa), run_and_compare(judged, isa));
}

}  // namespace

VerifyReport run_verify(const VerifyOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<Isa> isas = options.isa ? std::vector<Isa>{*options.isa} : usable_isas();
  VerifyReport report;
  if (options.device == Device::cuda) {
    std::string why;
    if (!cuda_runs(why)) throw Unsupported(fmt::format("verify cannot use a CUDA device: {}", why));
    report.isas.emplace_back("cuda");
  } else {
    for (const Isa isa : isas) report.isas.emplace_back(isa_name(isa));
  }
  int done = 0;
  bool stop = false;
  for (int repeat = 0; repeat < options.repeat && !stop; ++repeat) {
    const uint64_t seed = options.seed + static_cast<uint64_t>(repeat);
    const std::vector<CaseSpec> specs = pairwise_specs(seed, options.device);
    const int count = static_cast<int>(specs.size());
    const int first = options.only ? *options.only : 0, last = options.only ? *options.only + 1 : count;
    if (first < 0 || last > count)
      throw InvalidArgument(fmt::format("case is {}, but there are cases 0 to {}", first, count - 1));
    for (int index = first; index < last && !stop; index += options.every) {
      verify_case(specs[index], isas, seed, index, report);
      if (options.progress) options.progress(++done, ((last - first - 1) / options.every + 1) * options.repeat);
      stop = options.stop_at_first_failure && !report.failures.empty();
    }
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace longhaul::conformance
