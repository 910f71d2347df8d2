#include "attention/reference/skip_margins.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>

#include "attention/params_cuda.h"
#include "attention/reference/group.h"
#include "core/thread_pool.h"
#include "longhaul/error.h"

namespace longhaul {
namespace {

using namespace reference;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The largest of n scores; `finite` becomes false if one is infinite or NaN. Eight lanes, so that the compiler
// vectorises it.
double block_max(const double* scores, int64_t n, bool& finite) {
  constexpr int kLanes = 8;
  double largest[kLanes], zero[kLanes] = {};
  std::fill(largest, largest + kLanes, -kInfinity);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const double s = scores[i + lane];
      largest[lane] = s > largest[lane] ? s : largest[lane];
      zero[lane] += s * 0;  // NaN for an infinity or a NaN
    }
  }
  for (; i < n; ++i) {
    largest[0] = scores[i] > largest[0] ? scores[i] : largest[0];
    zero[0] += scores[i] * 0;
  }
  double m = -kInfinity, sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    m = std::max(m, largest[lane]);
    sum += zero[lane];
  }
  finite = finite && sum == 0;
  return sum == 0 ? m : std::numeric_limits<double>::quiet_NaN();
}

// The margins of one group. Blocks are counted from the first that the group sees.
class GroupMargins {
 public:
  GroupMargins(const AttentionParams& p, const ReferenceOptions& options, const GroupPlace& place)
      : p_(p), options_(options), place_(place), group_(p, options, place) {}

  std::vector<BlockMargin> run() {
    const KeyRange keys = group_.keys();
    if (keys.empty()) return {};
    group_.compute_scores();
    first_block_ = keys.begin / options_.geometry.block_keys;
    blocks_ = (keys.end - 1) / options_.geometry.block_keys - first_block_ + 1;
    margins_.assign(blocks_, {-kInfinity, 0});
    measure_blocks();
    visit_parts();
    return std::move(margins_);
  }

 private:
  KeyRange block_keys(int64_t block) const {
    const int64_t size = options_.geometry.block_keys, begin = (first_block_ + block) * size;
    return {begin, begin + size};
  }

  // Fills max_ [rows][blocks] (-inf: the row does not see the block) and marks blocks with a score that is not finite.
  void measure_blocks() {
    max_.assign(group_.rows().size() * blocks_, -kInfinity);
    for (size_t r = 0; r < group_.rows().size(); ++r) {
      const KeyRange seen = group_.rows()[r].keys;
      for (int64_t block = 0; block < blocks_; ++block) {
        const KeyRange keys = intersect(seen, block_keys(block));
        if (keys.empty()) continue;
        bool finite = true;
        max_[r * blocks_ + block] =
            block_max(group_.scores(r) + (keys.begin - group_.keys().begin), keys.end - keys.begin, finite);
        margins_[block].scores += keys.end - keys.begin;
        if (!finite) margins_[block].margin = kInfinity;
      }
    }
  }

  double range_max(size_t row, KeyRange range) const {
    if (range.empty()) return -kInfinity;
    const int64_t size = options_.geometry.block_keys;
    double m = -kInfinity;
    for (int64_t block = range.begin / size - first_block_; block <= (range.end - 1) / size - first_block_; ++block)
      m = join_max(m, max_[row * blocks_ + block]);
    return m;
  }

  // Parts are cut at tiles, as in the oracle's decide().
  void visit_parts() {
    const KeyRange keys = group_.keys();
    const std::vector<KeyRange> parts = key_parts(p_, options_, group_);
    std::vector<double> state(group_.rows().size(), -kInfinity);
    if (parts.empty()) return;
    visit(parts[0], state, true);
    if (parts.size() == 1) return;
    const int64_t tile_keys = options_.geometry.tile_keys;
    const KeyRange newest = intersect(keys, {(keys.end - 1) / tile_keys * tile_keys, keys.end});
    for (size_t i = 1; i < parts.size(); ++i) {
      for (size_t r = 0; r < state.size(); ++r) state[r] = range_max(r, newest);
      visit(parts[i], state, false);
    }
  }

  void visit(KeyRange part, std::vector<double> state, bool first_runs) {
    if (part.empty()) return;
    const int64_t tile_keys = options_.geometry.tile_keys;
    const int64_t first = part.begin / tile_keys, last = (part.end - 1) / tile_keys;
    for (int64_t i = 0; i <= last - first; ++i) {
      const int64_t tile = options_.order == VisitOrder::newest_first ? last - i : first + i;
      visit_tile(intersect(part, {tile * tile_keys, (tile + 1) * tile_keys}), state, first_runs && i == 0);
    }
  }

  void visit_tile(KeyRange tile, std::vector<double>& state, bool runs) {
    const int64_t size = options_.geometry.block_keys;
    const int64_t begin = tile.begin / size - first_block_, end = (tile.end - 1) / size - first_block_ + 1;
    if (runs) {
      for (int64_t block = begin; block < end; ++block) margins_[block].margin = kInfinity;
    }
    for (size_t r = 0; r < state.size(); ++r) {
      state[r] = join_max(state[r], range_max(r, tile));
      const bool usable = state[r] < kInfinity;  // neither +inf nor NaN
      for (int64_t block = begin; block < end; ++block) {
        const double m = max_[r * blocks_ + block];
        if (m == -kInfinity) continue;  // not seen
        margins_[block].margin = std::max(margins_[block].margin, usable ? m - state[r] : kInfinity);
      }
    }
  }

  const AttentionParams& p_;
  const ReferenceOptions& options_;
  const GroupPlace& place_;
  Group group_;
  int64_t first_block_ = 0, blocks_ = 0;
  std::vector<double> max_;
  std::vector<BlockMargin> margins_;
};

}  // namespace

SkipMargins::SkipMargins(std::vector<std::vector<BlockMargin>> heads) : heads_(std::move(heads)) {
  for (std::vector<BlockMargin>& blocks : heads_) {
    std::sort(blocks.begin(), blocks.end(),
              [](const BlockMargin& a, const BlockMargin& b) { return a.margin < b.margin; });
    std::vector<int64_t>& sums = cumulated_.emplace_back();
    int64_t sum = 0;
    for (const BlockMargin& block : blocks) sums.push_back(sum += block.scores);
  }
}

int64_t SkipMargins::skipped(int head, double lambda) const {
  const std::vector<BlockMargin>& blocks = heads_[head];
  const auto end =
      std::lower_bound(blocks.begin(), blocks.end(), std::log(lambda),
                       [](const BlockMargin& block, double log_lambda) { return block.margin < log_lambda; });
  return end == blocks.begin() ? 0 : cumulated_[head][end - blocks.begin() - 1];
}

SkipMargins skip_margins(const AttentionArgs& args, const ReferenceOptions& options) {
  if (args.rule != SkipRule::max) {
    throw Unsupported("rule is sum, whose reference depends on lambda; skip margins exist for rule max only");
  }
  AttentionArgs dense = args;
  dense.lambda = Lambda::none();
  check_options(options);
  const AttentionParams p = make_input_params(dense, options.phase);
  require_cpu(p, "the oracle");
  const std::vector<GroupPlace> places = list_groups(p, options);
  std::vector<std::vector<BlockMargin>> heads(options.phase == Phase::decode ? p.heads_kv : p.heads_q);
  std::mutex mutex;
  std::atomic<size_t> next{0};
  run_on_workers(default_threads(), [&](int) {
    for (size_t i = next++; i < places.size(); i = next++) {
      const std::vector<BlockMargin> margins = GroupMargins(p, options, places[i]).run();
      const std::lock_guard lock(mutex);
      std::vector<BlockMargin>& all = heads[places[i].voting_head];
      all.insert(all.end(), margins.begin(), margins.end());
    }
  });
  return SkipMargins(std::move(heads));
}

}  // namespace longhaul
