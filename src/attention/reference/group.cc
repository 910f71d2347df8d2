#include "attention/reference/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/mask_layout.h"
#include "attention/reference/dense_math.h"
#include "attention/skip_rule.h"
#include "attention/sm90/decode/parts.h"
#include "longhaul/error.h"

namespace longhaul::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// ln(e^a + e^b)
double log_add(double a, double b) {
  const double m = join_max(a, b);
  return m == -kInfinity ? m : m + std::log(std::exp(a - m) + std::exp(b - m));
}

// What the rule compares a block with: the tiles before, and the tile's own maximum.
double reference_of(SkipRule rule, const RowState& before, double tile_max) {
  return rule == SkipRule::max ? join_max(before.max, tile_max) : log_add(before.kept, tile_max);
}

double norm(const double* data, int n, int stride) {
  double sum = 0;
  for (int c = 0; c < n; ++c) sum += data[static_cast<int64_t>(c) * stride] * data[static_cast<int64_t>(c) * stride];
  return std::sqrt(sum);
}

}  // namespace

void check_options(const ReferenceOptions& options) {
  const Geometry& g = options.geometry;
  if (g.block_keys < 1 || g.tile_keys < g.block_keys || g.tile_keys % g.block_keys != 0)
    throw InvalidArgument(
        fmt::format("geometry has tiles of {} keys and blocks of {}, but a tile must be one or more blocks",
                    g.tile_keys, g.block_keys));
  if (options.phase == Phase::decode ? g.group_rows != 0 : g.group_rows < 1)
    throw InvalidArgument(fmt::format("geometry has groups of {} rows, but it must be {}", g.group_rows,
                                      options.phase == Phase::decode ? "0 in decode" : "at least 1 in prefill"));
  // A part that ended within a tile would vote on half of a block and drop all of it.
  if (follows_splits(options) && kCpuDecode.tile_keys % g.tile_keys != 0)
    throw Unsupported(
        fmt::format("geometry has tiles of {} keys, but the kernels' key splits cut at multiples of {}, so a tile must "
                    "divide that or the keys must stay in one part",
                    g.tile_keys, kCpuDecode.tile_keys));
}

bool follows_splits(const ReferenceOptions& options) {
  return options.phase == Phase::decode && options.kernel_splits && options.order == VisitOrder::newest_first;
}

std::vector<GroupPlace> list_groups(const AttentionParams& p, const ReferenceOptions& options) {
  std::vector<GroupPlace> places;
  const int rows = options.geometry.group_rows;
  const int voting_heads = options.phase == Phase::decode ? p.heads_kv : p.heads_q;
  int64_t base = 0;
  for (int b = 0; b < p.batch; ++b) {
    const int64_t groups = request_groups(p, b, rows), first = first_position(p, b), queries = p.q_length(b);
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t begin = rows == 0 ? 0 : (group_of(first, rows) + g) * rows - first;
      const int64_t end = rows == 0 ? queries : begin + rows;
      for (int h = 0; h < voting_heads; ++h)
        places.push_back({b, h, base + g, std::max<int64_t>(begin, 0), std::min(end, queries)});
    }
    base += groups;
  }
  return places;
}

std::vector<KeyRange> key_parts(const AttentionParams& p, const ReferenceOptions& options, const Group& group) {
  if (group.keys().empty()) return {};
  if (!follows_splits(options)) return {group.keys()};
  std::vector<KeyRange> parts;
  if (options.sm90_multiprocessors > 0) {
    parts = sm90_decode_parts(p, options.sm90_multiprocessors, group.request(), group.head_kv());
  } else {
    const int count =
        decode_splits(p.kv_length(group.request()), static_cast<int64_t>(p.batch) * p.heads_kv, p.batch_invariant);
    for (int i = 0; i < count; ++i) parts.push_back(decode_split(group.keys(), count, i));
  }
  for (KeyRange& part : parts) part = intersect(part, group.keys());
  std::erase_if(parts, [](const KeyRange& part) { return part.empty(); });
  return parts;
}

KeyRange intersect(KeyRange a, KeyRange b) {
  const KeyRange both{std::max(a.begin, b.begin), std::min(a.end, b.end)};
  return both.empty() ? KeyRange{} : both;
}

Group::Group(const AttentionParams& p, const ReferenceOptions& options, const GroupPlace& place)
    : p_(p), options_(options), request_(place.request) {
  const bool decode = options.phase == Phase::decode;
  head_kv_ = decode ? place.voting_head : place.voting_head / p.group;
  const int first_head = decode ? head_kv_ * p.group : place.voting_head;
  for (int64_t query = place.query_begin; query < place.query_end; ++query)
    for (int h = 0; h < (decode ? p.group : 1); ++h) add_row(query, first_head + h);
  for (const Row& row : rows_) {
    if (row.keys.empty()) continue;
    keys_ =
        keys_.empty() ? row.keys : KeyRange{std::min(keys_.begin, row.keys.begin), std::max(keys_.end, row.keys.end)};
  }
  width_ = keys_.end - keys_.begin;
}

void Group::add_row(int64_t query, int head) {
  Row row;
  row.token = p_.cu_q[request_] + query;
  row.head = head;
  row.keys = visible_keys(first_position(p_, request_) + query, p_.kv_length(request_), p_.causal, p_.window_left);
  row.log_lambda =
      p_.lambda_kind == Lambda::Kind::none ? -kInfinity : std::log(static_cast<double>(p_.lambda_of(request_, head)));
  rows_.push_back(row);
}

void Group::compute_scores() {
  scores_.resize(rows_.size() * width_);
  std::vector<double> queries(rows_.size() * p_.d), keys(static_cast<size_t>(p_.d) * kChunk);
  for (size_t r = 0; r < rows_.size(); ++r)
    load_row(p_.q, p_.q_dtype, rows_[r].token * p_.q_token + rows_[r].head * p_.q_head, p_.d, &queries[r * p_.d], 1);
  for (int64_t begin = keys_.begin; begin < keys_.end; begin += kChunk)
    score_chunk(begin, std::min(begin + kChunk, keys_.end), queries, keys);
}

void Group::score_chunk(int64_t begin, int64_t end, const std::vector<double>& queries, std::vector<double>& keys) {
  const bool sizes = options_.measure_sizes || options_.score_error > 0;
  double key_size[kChunk] = {}, dots[kChunk];
  for (int64_t j = begin; j < end; ++j) {
    load_row(p_.k, p_.kv_dtype, p_.k_offset(request_, j, head_kv_), p_.d, &keys[j - begin], kChunk);
    if (sizes) key_size[j - begin] = norm(&keys[j - begin], p_.d, kChunk);
  }
  for (size_t r = 0; r < rows_.size(); ++r) {
    Row& row = rows_[r];
    const KeyRange seen = intersect(row.keys, {begin, end});
    if (seen.empty()) continue;
    const double* query = &queries[r * p_.d];
    const double scale = static_cast<double>(p_.scale) * p_.q_scale_of(row.head) * p_.k_scale_of(head_kv_);
    dot_chunk(query, keys.data(), p_.d, dots);
    for (int64_t j = seen.begin; j < seen.end; ++j) {
      const double s = scale * dots[j - begin];
      scores_[r * width_ + (j - keys_.begin)] = p_.soft_cap > 0 ? p_.soft_cap * std::tanh(s / p_.soft_cap) : s;
    }
    if (!sizes) continue;
    double largest_key = 0;  // scores that are not finite have no rounding error
    for (int64_t j = seen.begin; j < seen.end; ++j)
      if (std::isfinite(score(r, j))) largest_key = std::max(largest_key, key_size[j - begin]);
    if (largest_key > 0) row.size = std::max(row.size, scale * norm(query, p_.d, 1) * largest_key);
  }
}

// The parts of a decode request other than the newest start from what the newest tile tells, so that splitting the keys
// among workers costs no sparsity and changes nothing from run to run.
void Group::decide() {
  const Geometry& g = options_.geometry;
  skipped_.assign(keys_.empty() ? 0 : (keys_.end - 1) / g.block_keys - keys_.begin / g.block_keys + 1, 0);
  if (keys_.empty()) return;
  std::vector<RowState> states(rows_.size(), RowState{-kInfinity, -kInfinity});
  const std::vector<KeyRange> parts = key_parts(p_, options_, *this);
  decide_part(parts[0], states, true);
  if (parts.size() == 1) return;
  const KeyRange newest = intersect(keys_, {(keys_.end - 1) / g.tile_keys * g.tile_keys, keys_.end});
  for (size_t r = 0; r < rows_.size(); ++r) states[r] = {largest(r, newest), log_mass(r, newest)};
  for (size_t i = 1; i < parts.size(); ++i) decide_part(parts[i], states, false);
}

void Group::decide_part(KeyRange part, std::vector<RowState> states, bool first_runs) {
  if (part.empty()) return;
  const int64_t tile_keys = options_.geometry.tile_keys;
  const int64_t first = part.begin / tile_keys, last = (part.end - 1) / tile_keys;
  for (int64_t i = 0; i <= last - first; ++i) {
    const int64_t tile = options_.order == VisitOrder::newest_first ? last - i : first + i;
    visit_tile(intersect(part, {tile * tile_keys, (tile + 1) * tile_keys}), states, first_runs && i == 0);
  }
}

void Group::visit_tile(KeyRange tile, std::vector<RowState>& states, bool runs) {
  const int64_t block_keys = options_.geometry.block_keys;
  std::vector<double> tile_max(rows_.size());
  for (size_t r = 0; r < rows_.size(); ++r) tile_max[r] = largest(r, tile);
  std::vector<double> kept(rows_.size(), -kInfinity);
  for (int64_t block = tile.begin / block_keys; block <= (tile.end - 1) / block_keys; ++block) {
    const KeyRange keys = intersect(tile, {block * block_keys, (block + 1) * block_keys});
    if (!runs && drops(keys, states, tile_max)) {
      skipped_[block - keys_.begin / block_keys] = 1;
    } else if (p_.rule == SkipRule::sum) {
      for (size_t r = 0; r < rows_.size(); ++r) kept[r] = log_add(kept[r], log_mass(r, keys));
    }
  }
  for (size_t r = 0; r < rows_.size(); ++r)
    states[r] = {join_max(states[r].max, tile_max[r]), log_add(states[r].kept, kept[r])};
}

// All rows that see the block must vote for it. `surely` and `possibly`: what fp32 scores could make of it.
bool Group::drops(KeyRange block, const std::vector<RowState>& before, const std::vector<double>& tile_max) {
  bool drop = true, surely = true, possibly = true;
  for (size_t r = 0; r < rows_.size(); ++r) {
    const KeyRange seen = intersect(rows_[r].keys, block);
    if (seen.empty()) continue;
    for (int64_t j = seen.begin; j < seen.end; ++j)
      if (!std::isfinite(score(r, j))) return false;
    const double block_max = largest(r, block), log_lambda = rows_[r].log_lambda;
    const double m_ref = reference_of(p_.rule, before[r], tile_max[r]);
    const double error = 2 * options_.score_error * rows_[r].size + options_.decision_error;
    drop = drop && votes_to_skip(block_max, m_ref, log_lambda);
    surely = surely && votes_to_skip(block_max + error, m_ref, log_lambda);
    // A block that holds the maximum beyond doubt differs from it by exactly 0 in any arithmetic.
    const bool is_maximum = p_.rule == SkipRule::max && block_max == m_ref && block_max - before[r].max > error;
    possibly = possibly && !is_maximum && votes_to_skip(block_max - error, m_ref, log_lambda);
  }
  ambiguous_ += possibly && !surely ? 1 : 0;
  return drop;
}

double Group::largest(size_t row, KeyRange range) const {
  const KeyRange seen = intersect(rows_[row].keys, range);
  double m = -kInfinity;
  for (int64_t j = seen.begin; j < seen.end; ++j) m = join_max(m, score(row, j));
  return m;
}

double Group::log_mass(size_t row, KeyRange range) const {
  const KeyRange seen = intersect(rows_[row].keys, range);
  const double m = largest(row, range);
  if (m == -kInfinity) return m;
  double sum = 0;
  for (int64_t j = seen.begin; j < seen.end; ++j) sum += std::exp(score(row, j) - m);
  return m + std::log(sum);
}

}  // namespace longhaul::reference
