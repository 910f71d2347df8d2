// longhaul verify: every kernel against the oracle.
#include <chrono>

#include "attention/testing/verify.h"
#include "cli/command.h"
#include "cli/support/console.h"
#include "cli/support/json.h"

namespace longhaul::cli {
namespace {

struct VerifyFlags {
  uint64_t seed = 1;
  double seconds = 0;
  std::string device = "cpu", isa;
  std::optional<int> only;
};

void add_report(conformance::VerifyReport& total, const conformance::VerifyReport& part) {
  total.cases += part.cases;
  total.isas = part.isas;
  total.visible += part.visible;
  total.skipped += part.skipped;
  total.redraws += part.redraws;
  total.seconds += part.seconds;
  total.failures.insert(total.failures.end(), part.failures.begin(), part.failures.end());
}

// One covering array, then, while --seconds last, others from the next seeds.
conformance::VerifyReport verify_for(const VerifyFlags& flags) {
  conformance::VerifyOptions options;
  options.seed = flags.seed;
  options.only = flags.only;
  if (flags.device == "cuda") options.device = Device::cuda;
  if (!flags.isa.empty()) options.isa = isa_from_name(flags.isa);
  const auto start = std::chrono::steady_clock::now();
  conformance::VerifyReport total;
  do {
    Progress progress(fmt::format("seed {}", options.seed), 1);
    options.progress = [&](int done, int all) { progress.set(static_cast<double>(done) / all); };
    add_report(total, conformance::run_verify(options));
    ++options.seed;
  } while (!flags.only &&
           std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < flags.seconds);
  return total;
}

Json report_json(const Invocation& invocation, const VerifyFlags& flags, const conformance::VerifyReport& report) {
  Json json = result_header(invocation.command_line);
  Json failures = Json::array();
  for (const conformance::VerifyFailure& f : report.failures)
    failures.push_back({{"isa", f.isa}, {"seed", f.seed}, {"index", f.index}, {"case", f.spec}, {"what", f.what}});
  json.update({{"seed", flags.seed},
               {"device", flags.device},
               {"isas", report.isas},
               {"comparisons", report.cases},
               {"visible_scores", report.visible},
               {"skipped_scores", report.skipped},
               {"redraws", report.redraws},
               {"seconds", report.seconds},
               {"failures", failures}});
  return json;
}

int run_verify_command(const Invocation& invocation, const VerifyFlags& flags) {
  const conformance::VerifyReport report = verify_for(flags);
  for (const conformance::VerifyFailure& f : report.failures)
    say("FAILED {} --seed {} --case {}: {}\n  {}", f.isa, f.seed, f.index, f.spec, f.what);
  std::string isas;
  for (const std::string& isa : report.isas) isas += (isas.empty() ? "" : ", ") + isa;
  say("{} comparisons with the oracle on {} in {}: {} failed", report.cases, isas, duration_text(report.seconds),
      report.failures.size());
  say("every pair of contract options occurs; the cases with a threshold skipped {} of their {} visible scores ({} "
      "cases drawn again because a score lay on the threshold)",
      report.skipped, report.visible, report.redraws);
  write_json(invocation.json, report_json(invocation, flags, report));
  return report.failures.empty() ? kFine : kFailed;
}

}  // namespace

void add_verify(CLI::App& program, Invocation& invocation) {
  auto* command = program.add_subcommand(
      "verify",
      "Compare every kernel with the double-precision oracle over all pairs of contract options\n\n"
      "Exit status 1 where a result lies outside the tolerance that its dtype allows.");
  auto flags = std::make_shared<VerifyFlags>();
  command->add_option("--seed", flags->seed, "Which cases are drawn")
      ->transform(whole_number(0, kNoLimit))
      ->capture_default_str();
  command->add_option("--seconds", flags->seconds, "Go on with further seeds until so much time has passed")
      ->type_name("T")
      ->check(number_from(0, 1e6));
  auto* device =
      command
          ->add_option("--device", flags->device, "cpu, or cuda: the current CUDA device's kernels, prefill and decode")
          ->check(CLI::IsMember({"cpu", "cuda"}))
          ->capture_default_str();
  command->add_option("--isa", flags->isa, "One instruction set instead of all usable ones")
      ->check(CLI::IsMember({"portable", "avx2", "avx512", "amx", "amx_emulated"}))
      ->excludes(device);
  command->add_option("--case", flags->only, "One case of the seed, to see a failure again")
      ->type_name("N")
      ->transform(whole_number(0, 1 << 20));
  finish_command(*command, invocation,
                 "  longhaul verify\n  longhaul verify --seconds 600 --seed 100\n  longhaul verify --isa portable "
                 "--seed 7 --case 12\n  longhaul verify --device cuda",
                 [&invocation, flags] { return run_verify_command(invocation, *flags); });
}

}  // namespace longhaul::cli
