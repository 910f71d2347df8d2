#include "cli/oracle_difference.h"

#include <cmath>

#include "cli/support/console.h"

namespace longhaul::cli {
namespace {

double largest_lse_difference(const std::vector<float>& kernel, const std::vector<double>& oracle) {
  double largest = 0;
  for (size_t i = 0; i < kernel.size(); ++i) {
    const double a = kernel[i], b = oracle[i];
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double delta = std::fabs(a - b);
    largest = std::isnan(delta) ? INFINITY : std::max(largest, delta);
  }
  return largest;
}

// Visible and skipped scores; bytes not read depend on how a kernel shares its reads.
bool same_scores(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  for (size_t h = 0; h < a.size(); h += 4)
    if (a[h] != b[h] || a[h + 1] != b[h + 1]) return false;
  return a.size() == b.size();
}

}  // namespace

Json compare_with_oracle(const AttentionRun& kernel, const ReferenceResult& oracle, const ReferenceOptions& options) {
  const AttentionArgs& args = kernel.args();
  const Geometry own = attention_geometry(args, kernel.phase()), other = options.geometry;
  const bool same_rule = own.tile_keys == other.tile_keys && own.block_keys == other.block_keys &&
                         own.group_rows == other.group_rows && options.order == VisitOrder::newest_first &&
                         (kernel.phase() == Phase::prefill || options.kernel_splits);
  const OutputError error = output_error(kernel.output(), oracle.output, args.output.shape[2]);
  Json json = {{"same_order_and_voting_group", same_rule},
               {"relative_rms", error.relative_rms},
               {"worst_row", error.worst_row},
               {"largest", error.largest},
               {"log_sum_exp_largest", largest_lse_difference(kernel.lse(), oracle.lse)},
               {"kernel_sparsity", sparsity(kernel.counters())},
               {"oracle_sparsity", sparsity(oracle.counters)}};
  if (!same_rule) return json;
  json["scores_equal"] = same_scores(kernel.counters(), oracle.counters);
  if (kernel.mask().empty()) return json;
  size_t differing = 0;
  for (size_t i = 0; i < kernel.mask().size(); ++i) differing += kernel.mask()[i] != oracle.skip_mask[i] ? 1 : 0;
  json["mask_blocks_differing"] = differing;
  return json;
}

void print_difference(const Json& difference) {
  const auto number = [&](const char* key) { return short_number(difference[key].get<double>()); };
  say("\nkernel against oracle{}:", difference["same_order_and_voting_group"].get<bool>()
                                        ? ""
                                        : " (which visits or votes otherwise, so both may skip different blocks)");
  say("  output       relative rms {}, worst row {}, largest {}", number("relative_rms"), number("worst_row"),
      number("largest"));
  say("  log-sum-exp  largest {}", number("log_sum_exp_largest"));
  say("  sparsity     kernel {}, oracle {}", percent(difference["kernel_sparsity"].get<double>()),
      percent(difference["oracle_sparsity"].get<double>()));
  if (difference.contains("scores_equal"))
    say("  skipped      {}",
        difference["scores_equal"].get<bool>() ? "the same scores" : "other scores: some block lies on the threshold");
  if (difference.contains("mask_blocks_differing"))
    say("  skip mask    {} blocks differ", difference["mask_blocks_differing"].get<size_t>());
}

}  // namespace longhaul::cli
