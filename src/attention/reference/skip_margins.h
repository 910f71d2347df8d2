// What every lambda would skip under rule max, from one pass: with that rule the reference of a block does not depend
// on what was skipped before, so one number a block, its margin, decides for all lambdas.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/reference/reference.h"

namespace longhaul {

struct BlockMargin {
  double margin;  // largest m_block - m_ref over the rows that see the block: skipped iff below ln(lambda); +inf: never
  int64_t scores;  // visible ones
};

class SkipMargins {
 public:
  explicit SkipMargins(std::vector<std::vector<BlockMargin>> heads);

  int voting_heads() const { return static_cast<int>(heads_.size()); }
  int64_t visible(int head) const { return heads_[head].empty() ? 0 : cumulated_[head].back(); }
  /// Scores of one voting head that `lambda` in [0, 1] skips, exactly as reference_attention does.
  int64_t skipped(int head, double lambda) const;

 private:
  std::vector<std::vector<BlockMargin>> heads_;  // ascending by margin
  std::vector<std::vector<int64_t>> cumulated_;  // scores up to and including each
};

/// Reads what reference_attention reads except lambda, and throws as it does; Unsupported also for rule sum, whose
/// reference depends on lambda.
SkipMargins skip_margins(const AttentionArgs& args, const ReferenceOptions& options);

}  // namespace longhaul
